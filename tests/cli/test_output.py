"""What commands print."""

import json

import pytest

from kohort.cli.output import print_json, print_table


def test_json_is_an_array_in_the_order_of_the_fields(capsys: pytest.CaptureFixture[str]) -> None:
    print_json([{"topic": "t", "partition": 1, "lag": None, "metadata": "✓"}])
    printed = capsys.readouterr().out
    assert json.loads(printed) == [{"topic": "t", "partition": 1, "lag": None, "metadata": "✓"}]
    assert list(json.loads(printed)[0]) == ["topic", "partition", "lag", "metadata"]
    assert printed.endswith("]\n")


def test_a_table_without_a_terminal_keeps_each_row_on_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"topic": "t" * 300, "end_offset": 10, "internal": False, "metadata": None},
        {"topic": "u", "end_offset": 1_000_000, "internal": True, "metadata": "[bold]not markup[/bold]"},
    ]
    print_table(("topic", "end_offset", "internal", "metadata"), rows, title="A title")
    title, heading, first, second = (line.split() for line in capsys.readouterr().out.splitlines())
    assert title == ["A", "title"]
    assert heading == ["TOPIC", "END", "OFFSET", "INTERNAL", "METADATA"]
    assert first == ["t" * 300, "10", "no", "-"]
    assert second == ["u", "1000000", "yes", "[bold]not", "markup[/bold]"]


def test_numbers_stand_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("lag",), [{"lag": 5}, {"lag": 50_000}])
    assert capsys.readouterr().out.splitlines() == ["  LAG", "    5", "50000"]


def test_no_rows_leave_the_headings(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("group", "state"), [])
    assert capsys.readouterr().out.split() == ["GROUP", "STATE"]
