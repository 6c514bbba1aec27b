"""
Targets of an offset reset, and the offset that a target means for one partition.

The rules are those of `kafka-consumer-groups.sh --reset-offsets`: an offset outside the log is moved to the nearest end of the
log. A time after the last record means the end of the log. So does "current" for a partition without a committed offset.

Source: Kafka ConsumerGroupCommand, OffsetsUtils.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.numbers import is_number


class PartitionOffsets(NamedTuple):
    """
    Offsets of one partition before the reset.

    Attributes:
        committed: the committed offset; None if there is none.
        start: the log start offset.
        end: the high watermark.
        at_time: the offset for the requested timestamp; None or -1 if no record is that recent.
    """

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


class ResetTarget(NamedTuple):
    """
    The target of a reset.

    Attributes:
        requested: returns the requested offset, which may lie outside the log. Raises ConfigError if there is none.
        timestamp_ms: the time for which `PartitionOffsets.at_time` is needed.
        is_moved: an offset outside the log is moved into it.
    """

    requested: Callable[[TopicPartition, PartitionOffsets], int]
    timestamp_ms: int | None = None
    is_moved: bool = True

    def offset(self, partition: TopicPartition, offsets: PartitionOffsets) -> int:
        """Return the offset to commit. Raises ConfigError, as `requested` does."""
        wanted = self.requested(partition, offsets)
        return min(max(wanted, offsets.start), offsets.end) if self.is_moved else wanted


TO_EARLIEST = ResetTarget(lambda _, offsets: offsets.start)
TO_LATEST = ResetTarget(lambda _, offsets: offsets.end)
TO_CURRENT = ResetTarget(
    lambda _, offsets: offsets.end if offsets.committed is None else offsets.committed, is_moved=False
)
"""The committed offset is kept even outside the log, as in Kafka."""


def to_offset(offset: int) -> ResetTarget:
    """Return the target with the same offset in every partition."""
    return ResetTarget(lambda _partition, _offsets: offset)


def shift_by(count: int) -> ResetTarget:
    """Return the committed offset plus `count`, which may be negative, as target."""

    def shifted(partition: TopicPartition, offsets: PartitionOffsets) -> int:
        if offsets.committed is None:
            raise ConfigError(f"{partition} cannot be shifted: the group has committed no offset there")
        return offsets.committed + count

    return ResetTarget(shifted)


def at_time(timestamp_ms: int) -> ResetTarget:
    """Return the first record at or after a timestamp in milliseconds since 1970 as target."""
    return ResetTarget(
        lambda _, offsets: offsets.end if offsets.at_time is None or offsets.at_time < 0 else offsets.at_time,
        timestamp_ms,
    )


def datetime_ms(text: str) -> int:
    """
    Parse an ISO 8601 date and time into milliseconds since 1970. The default time zone is UTC, as in Kafka's tool.

    Raises:
        ConfigError: the text has another form, or the time is before 1970.
    """
    try:
        moment = datetime.fromisoformat(text) if "T" in text.upper() else None
    except ValueError:
        moment = None
    if moment is None:
        raise ConfigError(f"{text!r} is not a date and time; write for example 2026-03-01T08:30:00.000")
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    timestamp_ms = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    if timestamp_ms < 0:
        raise ConfigError(f"{text!r} is before 1970; no record is that old")
    return timestamp_ms


_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


_UNITS_MAX = 1_000_000_000_000
"""Days, hours, minutes or seconds; as milliseconds they have no more than 64 bits."""


def duration_ms(text: str) -> int:
    """
    Parse an ISO 8601 duration of days and smaller units (`P7D`, `PT1H30M`) into milliseconds.

    Raises:
        ConfigError: the text has another form.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()):
        raise ConfigError(
            f"{text!r} is not a duration; write for example PT1H30M for an hour and a half, or P7D for a week"
        )
    whole, _, fraction = (match["seconds"] or "0").partition(".")
    texts = (match["days"] or "0", match["hours"] or "0", match["minutes"] or "0", whole)
    if not all(is_number(each, 0, _UNITS_MAX) for each in texts):
        raise ConfigError(f"{text[:40]!r} is too long a duration")
    days, hours, minutes, seconds = map(int, texts)
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000 + int(f"{fraction:0<3.3}" or 0)
