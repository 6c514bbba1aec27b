"""
Where the offsets of a group are moved to: what can be asked for, and what it comes to for one partition.

The rules are those of `kafka-consumer-groups.sh --reset-offsets`: an offset outside of the log becomes the nearest end of it,
a time after the last record means the end of the log, and so does "current" where nothing was committed.

Source: Kafka ConsumerGroupCommand, OffsetsUtils.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias, assert_never

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Earliest:
    """Where the log begins."""


@dataclass(frozen=True, slots=True)
class Latest:
    """Where the log ends: the high watermark."""


@dataclass(frozen=True, slots=True)
class Current:
    """Where the group stands."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """From where the group stands, forwards or, below 0, backwards."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of that time or later; milliseconds since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class FromPlan:
    """An offset of its own for each partition."""

    offsets: Mapping[TopicPartition, int]


Position: TypeAlias = Earliest | Latest | Current | ToOffset | ShiftBy | AtTime | FromPlan


class PartitionOffsets(NamedTuple):
    """
    What is known of one partition before the move.

    Attributes:
        committed: None where nothing was.
        at_time: the offset of the time that was asked for; None or -1 where no record is that young.
    """

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


def wanted_offset(position: Position, partition: TopicPartition, standing: PartitionOffsets) -> int:
    """
    What is asked for, be it in the log or not.

    Raises:
        ConfigError: a partition cannot be shifted, for nothing was committed in it.
    """
    match position:
        case Earliest():
            return standing.start
        case Latest():
            return standing.end
        case Current():
            return standing.end if standing.committed is None else standing.committed
        case ToOffset():
            return position.offset
        case ShiftBy():
            if standing.committed is None:
                raise ConfigError(f"{partition} cannot be shifted: nothing was committed in it")
            return standing.committed + position.count
        case AtTime():
            return standing.end if standing.at_time is None or standing.at_time < 0 else standing.at_time
        case FromPlan():
            return position.offsets[partition]
        case _:
            assert_never(position)


def new_offset(position: Position, partition: TopicPartition, standing: PartitionOffsets) -> int:
    """
    The offset to commit: what is asked for, within the log. What is committed already stays as it is, as in Kafka.

    Raises:
        ConfigError: as `wanted_offset`.
    """
    wanted = wanted_offset(position, partition, standing)
    return wanted if isinstance(position, Current) else min(max(wanted, standing.start), standing.end)


def datetime_ms(text: str) -> int:
    """
    Milliseconds since 1970 of an ISO 8601 date and time; without an offset from UTC it is in UTC, as in Kafka's tool.

    Raises:
        ConfigError: it is no such text, or before 1970.
    """
    try:
        moment = datetime.fromisoformat(text) if "T" in text.upper() else None
    except ValueError:
        moment = None
    if moment is None:
        raise ConfigError(f"{text!r} is no date and time; write for example 2026-03-01T08:30:00.000")
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    timestamp_ms = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    if timestamp_ms < 0:
        raise ConfigError(f"{text!r} is before 1970, and so is no record")
    return timestamp_ms


_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.ASCII | re.IGNORECASE,
)


def duration_ms(text: str) -> int:
    """
    Milliseconds of an ISO 8601 duration of days and smaller units (`P7D`, `PT1H30M`).

    Raises:
        ConfigError: it is no such text.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groupdict().values()):
        raise ConfigError(
            f"{text!r} is no duration; write for example PT1H30M for an hour and a half, or P7D for a week"
        )
    days, hours, minutes = (int(match[name] or 0) for name in ("days", "hours", "minutes"))
    seconds, _, fraction = (match["seconds"] or "0").partition(".")
    return ((days * 24 + hours) * 60 + minutes) * 60_000 + int(seconds) * 1000 + int(f"{fraction:0<3.3}" or 0)
