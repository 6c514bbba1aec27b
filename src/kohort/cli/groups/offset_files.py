"""
Offsets of groups in files: what `groups export` writes, and what `groups import` and `reset-offsets --from-file` read.

Two formats, told apart by their first character:

- JSON, an array of objects with `group`, `topic`, `partition`, `offset`, and if known `leader_epoch` and `metadata`; other
  fields are ignored, so that the output of `kohort offsets --json` can be read, too.
- CSV as Kafka's tool writes and reads it (`kafka-consumer-groups.sh --reset-offsets --export`, `--from-file`): no heading, and
  `topic,partition,offset` when it is of one group, else `group,topic,partition,offset`.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1


class Exported(msgspec.Struct, frozen=True):
    """One committed offset; `group` is None where the file leaves it open."""

    topic: str
    partition: int
    offset: int
    group: str | None = None
    leader_epoch: int = -1
    metadata: str | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def csv_text(rows: Iterable[dict[str, Any]], *, with_group: bool) -> str:
    """Rows of `kohort offsets` in Kafka's format."""
    fields = ("group", "topic", "partition", "offset") if with_group else ("topic", "partition", "offset")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row[field] for field in fields] for row in rows)
    return text.getvalue()


def read_offsets(path: Path) -> list[Exported]:
    """
    What a file holds, in its order.

    Raises:
        ConfigError: it cannot be read, is in neither format, or names a partition of a group twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"cannot read {path}: {reason}") from error
    found = _read_json(path, text) if text.lstrip()[:1] == "[" else _read_csv(path, text)
    seen: set[tuple[str | None, TopicPartition]] = set()
    for each in found:
        if (each.group, each.topic_partition) in seen:
            raise ConfigError(f"{path} has {each.topic_partition} twice")
        seen.add((each.group, each.topic_partition))
        _check(path, each)
    return found


def _check(path: Path, each: Exported) -> None:
    if not each.topic or not 0 <= each.partition <= _INT32_MAX or not 0 <= each.offset <= _INT64_MAX:
        raise ConfigError(f"{path}: {each.topic!r}, partition {each.partition}, offset {each.offset} cannot be")


def _read_json(path: Path, text: str) -> list[Exported]:
    try:
        rows = msgspec.json.decode(text, type=list[_JsonRow])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is no array of offsets: {error}") from error
    return [
        Exported(
            row.topic,
            row.partition,
            row.offset,
            row.group,
            -1 if row.leader_epoch is None else row.leader_epoch,
            row.metadata,
        )
        for row in rows
        if row.offset is not None
    ]


class _JsonRow(msgspec.Struct):
    topic: str
    partition: int
    offset: int | None
    group: str | None = None
    leader_epoch: int | None = None
    metadata: str | None = None


def _read_csv(path: Path, text: str) -> list[Exported]:
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        return [_csv_row(row) for row in reader if row]
    except (csv.Error, ValueError) as error:
        raise ConfigError(
            f"{path}, line {reader.line_num}: expected topic,partition,offset or group,topic,partition,offset ({error})"
        ) from error


def _csv_row(row: Sequence[str]) -> Exported:
    if len(row) not in (3, 4):
        raise ValueError(f"there are {len(row)} fields")
    group = row[0] if len(row) == 4 else None
    topic, partition, offset = (field.strip() for field in row[-3:])
    for number in (partition, offset):
        if not (number.isascii() and number.isdecimal()):
            raise ValueError(f"{number!r} is no number")
    return Exported(topic, int(partition), int(offset), group)
