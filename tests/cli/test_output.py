"""What commands print."""

import json

import pytest

from kohort.cli import main
from kohort.cli.output import echo, print_json, print_table
from kohort.model.errors import ConfigError


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


HOSTILE = "a\x1b[2J\r\n\x9b31m\u2028\u202eb\x7f"
ESCAPED = r"a\x1b[2J\r\n\x9b31m\u2028\u202eb\x7f"


def test_no_text_of_a_client_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("group", "members"), [{"group": HOSTILE, "members": [HOSTILE, "b"]}], title=HOSTILE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.rstrip() for line in lines[-1:]] == [f"{ESCAPED}  {ESCAPED},b"]
    assert all(line.isprintable() for line in lines)
    echo(f"Deleted group {HOSTILE}.")
    echo(HOSTILE, err=True)
    written = capsys.readouterr()
    # A sentence may have lines.
    assert written.out == f"Deleted group {ESCAPED}.\n".replace(r"\r\n", "\\r\n")
    assert written.err == f"{ESCAPED}\n".replace(r"\r\n", "\\r\n")
    print_json([{"group": HOSTILE}])
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.splitlines())
    assert json.loads(text) == [{"group": HOSTILE}]


def test_an_error_with_the_name_of_a_client_is_printable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_arguments: list[str]) -> int:
        raise ConfigError(f"there is no group {HOSTILE}")

    monkeypatch.setattr(main, "_run_app", fail)
    assert main.run([]) == 2
    assert capsys.readouterr().err == f"kohort: there is no group {ESCAPED}\n".replace(r"\r\n", "\\r\n")
