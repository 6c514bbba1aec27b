"""The history of a group's membership, out of its records."""

from typing import Any

from kohort.pipeline.tables.groups.group_history import INPUT_COLUMNS
from kohort.pipeline.tables.groups.rebalances import rebalances
from tests.pipeline import frames

T = 1_000_000


def record(
    at_ms: int, generation: int | None, members: str | None, *, state_ms: int | None = -1, group: str = "g"
) -> frames.Row:
    """A record at an offset of its time; `members` are letters, None is a tombstone."""
    row: frames.Row = {"kind": "group_metadata", "log_partition": 0, "log_offset": at_ms, "timestamp_ms": T + at_ms}
    row |= {"group": group, "tombstone": members is None, "generation": generation}
    if members is None:
        return row
    state = None if state_ms is None else state_ms if state_ms < 0 else T + state_ms
    return row | {
        "members": [member(letter) for letter in members],
        "state_timestamp_ms": state,
        "protocol_type": "consumer",
    }


def member(letter: str) -> frames.Row:
    return {
        "member_id": f"id-{letter}",
        "instance_id": f"static-{letter}" if letter.isupper() else None,
        "client_id": letter,
        "client_host": "/127.0.0.1",
        "rebalance_timeout_ms": 1,
        "session_timeout_ms": 1,
        "subscription": b"\x00",
        "assignment": b"",
    }


# fmt: off
HISTORY = [  # record                                   event         members joined  left   sync   duration
    (record(0, 0, "", state_ms=0),                      "created",    "",     "",     "",    None,  None),
    (record(3000, 1, "a", state_ms=2990),               "rebalanced", "a",    "a",    "",    10,    3000),
    (record(4000, 2, "abC", state_ms=3993),             "rebalanced", "abC",  "bC",   "",    7,     None),
    (record(5000, 3, "abC", state_ms=5000),             "rebalanced", "abC",  "",     "",    0,     None),
    (record(5500, 3, "abD", state_ms=5001),             "replaced",   "abD",  "D",    "C",   None,  None),
    (record(6000, 4, "bD", state_ms=None),              "rebalanced", "bD",   "",     "a",   None,  None),
    (record(6500, 5, "bD", state_ms=7000),              "rebalanced", "bD",   "",     "",    None,  None),
    (record(7000, 6, "", state_ms=7000),                "emptied",    "",     "",     "bD",  None,  None),
    (record(8000, 7, "e", state_ms=7999),               "rebalanced", "e",    "e",    "",    1,     None),
    (record(9000, None, None),                          "deleted",    "",     "",     "e",   None,  None),
    (record(9500, 0, "", state_ms=9500),                "created",    "",     "",     "",    None,  None),
    (record(9600, 1, "f", state_ms=9590),               "rebalanced", "f",    "f",    "",    10,    100),
]
COMPACTED = [  # the records before are gone
    (record(100, 9, "ab", state_ms=99, group="c"),      "rebalanced", "ab",   None,   None,  1,     None),
    (record(200, 10, "b", state_ms=199, group="c"),     "rebalanced", "b",    "",     "a",   1,     None),
]
# fmt: on


def letters(members: list[frames.Row] | None) -> str | None:
    return None if members is None else "".join(member["client_id"] for member in members)


def test_what_happened_to_a_group(engine: Any) -> None:
    rows = [row for row, *_ in HISTORY + COMPACTED]
    other = [{"kind": "offset_commit", "group": "g", "log_offset": 1, "log_partition": 0}]
    frame = rebalances(frames.records(engine, INPUT_COLUMNS, [*reversed(rows), *other]))
    got = [
        (
            row["event"],
            letters(row["members"]),
            letters(row["joined"]),
            letters(row["left"]),
            row["sync_ms"],
            row["duration_ms"],
        )
        for row in sorted(frames.rows_of(frame, "log_offset"), key=lambda row: row["group"] == "c")
    ]
    assert got == [tuple(expected) for _, *expected in HISTORY + COMPACTED]


def test_members_come_without_their_bytes(engine: Any) -> None:
    frame = rebalances(frames.records(engine, INPUT_COLUMNS, [record(0, 1, "A")]))
    (row,) = frames.rows_of(frame, "log_offset")
    assert row["joined"] == [
        {"member_id": "id-A", "instance_id": "static-A", "client_id": "A", "client_host": "/127.0.0.1"}
    ]
