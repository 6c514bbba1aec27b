"""Tables are printed as if row by row: Arrow formats the plain cells of slices of rows."""

import json
from typing import Any

import pyarrow as pa
import pytest

from kohort.cli.pipeline.aligned import SLICE_ROWS, print_table
from kohort.pipeline.decode.schemas import SCHEMA
from kohort.pipeline.tables.contract import arrow_schema
from tests.pipeline.lines import printed

OFFSETS = pa.schema(
    [SCHEMA.field(name) for name in ("group", "topic", "partition", "offset", "leader_epoch", "metadata")]
    + [pa.field("commit_timestamp_ms", pa.int64())]
)
INSTANTS = (0, 1_795_252_834_001, -1, None, 253_402_300_799_999, 253_402_300_800_000)
TEXTS = (
    "",
    "plain",
    None,
    "new\nline",
    "\x00",
    "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n",
    "\N{CJK UNIFIED IDEOGRAPH-6F22}",
)
MEMBER = {"member_id": "m", "instance_id": None, "client_id": "c", "client_host": "/h"}


def row(number: int) -> dict[str, Any]:
    instant, text = INSTANTS[number % len(INSTANTS)], TEXTS[number % len(TEXTS)]
    place = {
        "group": f"group-{number}",
        "topic": "t" * (number % 9),
        "partition": number,
        "offset": (number * 7919) ** 3,
    }
    return place | {"leader_epoch": -1, "metadata": text, "commit_timestamp_ms": instant}


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("count", [0, 1, len(INSTANTS) * len(TEXTS), SLICE_ROWS + 3])
def test_the_same_text_as_row_by_row(capsys: pytest.CaptureFixture[str], count: int, as_json: bool) -> None:
    table = pa.Table.from_pylist([row(number % 60) for number in range(count)], OFFSETS)
    print_table(table, as_json, "offsets")
    assert capsys.readouterr().out == printed(table.to_pylist(), "offsets", as_json=as_json)


def test_cells_that_only_a_function_can_format(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"group": "g", "group_type": "classic", "event": "rebalanced", "generation": 1, "members": [MEMBER], "why": why}
        | {"joined": joined, "left": [], "moved": None, "completed_at_ms": 5, "sync_ms": 7, "duration_ms": took}
        for why, joined, took in ((["joined"], [MEMBER], None), (None, None, 61_000))
    ]
    table = pa.Table.from_pylist(rows, arrow_schema("rebalances"))
    expected = printed(table.to_pylist(), "rebalances")
    assert "joined" in expected
    print_table(table, False, "rebalances")
    assert capsys.readouterr().out == expected


def test_an_unknown_value_is_a_dash_whatever_arrow_makes_of_its_type(capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of Python objects have no schema: a column without a value has no type."""
    verdict = {"verdict": "OK", "why": "", "status": None, "lag": 0, "time_lag_ms": None, "commits": 0}
    rows = [{"group": "g", "topic": "t", "partition": 0} | verdict | {"last_commit_ms": None, "since_ms": None}]
    print_table(pa.Table.from_pylist(rows), False, "verdicts")
    assert capsys.readouterr().out == printed(rows, "verdicts")


def test_a_long_text_of_a_client_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    row = dict.fromkeys(column.name for column in arrow_schema("offsets")) | {
        "group": "g",
        "topic": "t",
        "partition": 0,
    }
    rows = [row | {"metadata": text} for text in ("x" * 40, "ä" * 41, None)]
    print_table(pa.Table.from_pylist(rows, arrow_schema("offsets")), False, "offsets")
    out = capsys.readouterr().out
    assert out == printed(rows, "offsets")
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["x" * 40, "ä" * 39 + "…", "-"]
    print_table(pa.Table.from_pylist(rows, arrow_schema("offsets")), True, "offsets")
    assert [row["metadata"] for row in json.loads(capsys.readouterr().out)] == ["x" * 40, "ä" * 41, None]


def test_records_in_flight_of_a_share_group(capsys: pytest.CaptureFixture[str]) -> None:
    """The state has ranges of records; those that are done are not in flight any more."""
    ranges = (
        (10, 29, "available"),
        (30, 30, "acquired"),
        (31, 40, "acknowledged"),
        (41, 41, "archived"),
        (42, 43, "archiving"),
    )
    names = ("first_offset", "last_offset", "state")
    batches = [dict(zip(names, each, strict=True), deliveries=1) for each in ranges]
    place = {"group": "g", "topic": "t", "partition": 0}
    print_table(pa.Table.from_pylist([place | {"batches": batches}], arrow_schema("share_state")), False, "share_state")
    header, line = capsys.readouterr().out.splitlines()
    assert header.split("IN FLIGHT")[0].rstrip().endswith("DONE")
    assert line[header.index("IN FLIGHT") :].split()[0] == "23"
