"""Where an offset is moved to, row by row: what Kafka's tool does for the same log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.cli.groups.reset_plans import parse_topics
from kohort.cli.groups.reset_targets import (
    TO_CURRENT,
    TO_EARLIEST,
    TO_LATEST,
    PartitionOffsets,
    ResetTarget,
    at_time,
    datetime_ms,
    duration_ms,
    shift_by,
    to_offset,
)
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

PARTITION = TopicPartition("t", 0)


def from_rows(offsets: dict[TopicPartition, int]) -> ResetTarget:
    """The target of an import: an offset for each partition."""
    return ResetTarget(lambda partition, _: offsets[partition])


# fmt: off
MOVED: list[tuple[ResetTarget, int | None, int | None, int]] = [  # position, committed, found by time, new; log from 10 to 20
    (TO_EARLIEST,                   15,   None, 10),
    (TO_LATEST,                     15,   None, 20),
    (TO_CURRENT,                    15,   None, 15),
    (TO_CURRENT,                    None, None, 20),
    (TO_CURRENT,                    99,   None, 99),
    (to_offset(9),                 15,   None, 10),
    (to_offset(10),                15,   None, 10),
    (to_offset(20),                None, None, 20),
    (to_offset(21),                15,   None, 20),
    (shift_by(3),                  15,   None, 18),
    (shift_by(-3),                 15,   None, 12),
    (shift_by(-6),                 15,   None, 10),
    (shift_by(6),                  15,   None, 20),
    (at_time(5),                   15,   12,   12),
    (at_time(5),                   15,   -1,   20),
    (at_time(5),                   None, None, 20),
    (from_rows({PARTITION: 17}),   15,   None, 17),
    (from_rows({PARTITION: 7}),    None, None, 10),
]
# fmt: on


@pytest.mark.parametrize(("position", "committed", "timed", "moved"), MOVED)
def test_new_offsets(position: ResetTarget, committed: int | None, timed: int | None, moved: int) -> None:
    assert position.offset(PARTITION, PartitionOffsets(committed, 10, 20, timed)) == moved


def test_what_was_never_committed_cannot_be_shifted() -> None:
    with pytest.raises(ConfigError, match="t-0 cannot be shifted: the group has committed no offset there"):
        shift_by(1).offset(PARTITION, PartitionOffsets(None, 10, 20))


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_a_move_ends_within_the_log(number: int, start: int, length: int, committed: int) -> None:
    standing = PartitionOffsets(committed, start, start + length, number)
    for position in (to_offset(number), shift_by(number), at_time(0), from_rows({PARTITION: number})):
        assert start <= position.offset(PARTITION, standing) <= start + length


# fmt: off
MOMENTS = {
    "1970-01-01T00:00:00":           0,
    "1970-01-01T00:00:00.001":       1,
    "2026-03-01T08:30:00.123":       1_772_353_800_123,
    "2026-03-01T08:30:00.123Z":      1_772_353_800_123,
    "2026-03-01T09:30:00.123+01:00": 1_772_353_800_123,
    "2026-03-01T00:30:00.123-0800":  1_772_353_800_123,
}
DURATIONS = {
    "P1D":         86_400_000,
    "PT1H30M":     5_400_000,
    "PT0.5S":      500,
    "PT0S":        0,
    "P1DT2H3M4S":  93_784_000,
    "pt5m":        300_000,
}
# fmt: on


@pytest.mark.parametrize("text", MOMENTS)
def test_moments(text: str) -> None:
    assert datetime_ms(text) == MOMENTS[text]


@pytest.mark.parametrize("text", ["", "yesterday", "2026-03-01", "2026-13-01T00:00:00", "1969-12-31T23:59:59", "T"])
def test_no_moment(text: str) -> None:
    with pytest.raises(ConfigError, match=r"not a date and time|before 1970"):
        datetime_ms(text)


@pytest.mark.parametrize("text", DURATIONS)
def test_durations(text: str) -> None:
    assert duration_ms(text) == DURATIONS[text]


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "P1M", "P1Y", "PT-1H", "P1W", "PT\u0661H"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a duration"):
        duration_ms(text)


def test_topics_and_partitions() -> None:
    assert parse_topics(["a", "b:2,0,2", "c:1"]) == {"a": None, "b": [0, 2], "c": [1]}


@pytest.mark.parametrize("texts", [["a:"], [":1"], ["a:x"], ["a:-1"], ["a", "a:1"], [""]])
def test_no_topics(texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="--topic"):
        parse_topics(texts)
