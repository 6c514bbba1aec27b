"""Files with offsets: what is written can be read, what cannot be read is said with its place."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.cli.groups.offset_files import FileOffset, csv_text, read_offsets
from kohort.model.errors import ConfigError

ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "group": st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=8).map(
                lambda text: "g" + text
            ),
            "topic": st.from_regex(r"[a-zA-Z0-9._-]{1,9}", fullmatch=True),
            "partition": st.integers(0, (1 << 31) - 1),
            "offset": st.integers(0, (1 << 63) - 1),
            "leader_epoch": st.integers(-1, 9),
            "metadata": st.none() | st.text(max_size=5),
        }
    ),
    unique_by=lambda row: (row["group"], row["topic"], row["partition"]),
    max_size=5,
)


@given(ROWS)
def test_what_was_exported_can_be_imported(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "offsets"
    path.write_text(json.dumps(rows))
    assert read_offsets(path) == [FileOffset(**row) for row in rows]
    path.write_text(csv_text(rows, with_group=True))
    bare = [{**row, "leader_epoch": -1, "metadata": None} for row in rows]
    assert read_offsets(path) == [FileOffset(**row) for row in bare]


def test_kafkas_format(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_text("orders,0,5\npay,10,7\n")
    assert read_offsets(path) == [FileOffset("orders", 0, 5), FileOffset("pay", 10, 7)]
    path.write_text('"a,b",orders,0,5\r\n\r\ng, pay, 1, 7')
    assert read_offsets(path) == [FileOffset("orders", 0, 5, "a,b"), FileOffset("pay", 1, 7, "g")]
    assert csv_text([{"group": "a,b", "topic": "t", "partition": 1, "offset": 2}], with_group=True) == '"a,b",t,1,2\n'


def test_the_offsets_command_can_be_imported(tmp_path: Path) -> None:
    row = {"group": "g", "topic": "t", "partition": 0, "leader_epoch": None, "metadata": "m", "end_offset": 9, "lag": 1}
    path = tmp_path / "offsets.json"
    path.write_text(json.dumps([{**row, "offset": 8}, {**row, "partition": 1, "offset": None}]))
    assert read_offsets(path) == [FileOffset("t", 0, 8, "g", -1, "m")]


# fmt: off
REFUSED = {
    "orders,0":                         r"line 1: .*\(there are 2 fields\)",
    "orders,0,5\norders,x,5":           r"line 2: .*\('x' is not a number\)",
    "orders,0,-5":                      "'-5' is not a number",
    "orders,0,5\norders,0,6":           "orders-0 twice",
    "orders,0,99999999999999999999":    "is not a number",
    "orders,2147483648,1":              "is not valid",
    ",0,1":                             "is not valid",
    '"orders,0,1':                      "line 1",
    "[":                                "not a JSON array of offsets",
    '[{"topic": "t"}]':                 "not a JSON array of offsets",
    '[{"topic": "t", "partition": 0, "offset": -1}]': "is not valid",
}
# fmt: on


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "offsets"
    path.write_text(text)
    with pytest.raises(ConfigError, match=REFUSED[text]):
        read_offsets(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        read_offsets(tmp_path / "absent")
