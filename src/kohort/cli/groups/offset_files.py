"""
Files of committed offsets: written by `groups export`, read by `groups import` and `reset-offsets --from-file`.

There are two formats, distinguished by the first character:

- JSON: an array of objects with `group`, `topic`, `partition`, `offset`, and optionally `leader_epoch` and `metadata`. Other
  fields are ignored, so the output of `kohort offsets --json` can be read, too.
- CSV of Kafka's tool (`kafka-consumer-groups.sh --reset-offsets --export`, `--from-file`): no header, and
  `topic,partition,offset` for one group, `group,topic,partition,offset` for several.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.numbers import INT32_MAX, INT64_MAX, is_number

SPARK = "spark"
"""The format of `startingOffsets`, which Spark's Kafka source takes."""
_EARLIEST = -2
"""The earliest offset, as Spark writes it."""


class FileOffset(msgspec.Struct, frozen=True):
    """One committed offset of a file. `group` is None if the file does not name one."""

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
    """Format rows of `kohort offsets` as Kafka's CSV."""
    fields = ("group", "topic", "partition", "offset") if with_group else ("topic", "partition", "offset")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([row[field] for field in fields] for row in rows)
    return text.getvalue()


def read_offsets(path: Path) -> list[FileOffset]:
    """
    Read a file, in its order.

    Raises:
        ConfigError: the file cannot be read, has neither format, or names a partition of a group twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"cannot read {path}: {reason}") from error
    found = _read_json(path, text) if text.lstrip()[:1] == "[" else _read_csv(path, text)
    seen: set[tuple[str | None, TopicPartition]] = set()
    for each in found:
        if (each.group, each.topic_partition) in seen:
            raise ConfigError(f"{path} has {each.topic_partition} twice")
        seen.add((each.group, each.topic_partition))
        _check(path, each)
    return found


def starting_offsets(rows: Iterable[dict[str, Any]], described: Iterable[Any]) -> str:
    """
    Format rows of `kohort offsets` as `startingOffsets` of Spark's Kafka source, which wants all partitions of topics. Those
    that the group has not committed begin at the earliest offset.

    Args:
        described: the topics, as Metadata has them; deleted ones are left out.
    """
    committed = {(row["topic"], row["partition"]): row["offset"] for row in rows}
    found = {
        topic.name: {
            str(number): committed.get((topic.name, number), _EARLIEST)
            for number in sorted(one.partition_index for one in topic.partitions)
        }
        for topic in described
    }
    return json.dumps(found, separators=(",", ":"))


def from_checkpoint(path: str) -> list[FileOffset]:
    """
    Return where a Spark query stands.

    Raises:
        ConfigError: it is no checkpoint, it cannot be read, or it has no position yet.
    """
    from kohort.pipeline.checkpoints.checkpoint import Extent, read_checkpoint
    from kohort.pipeline.checkpoints.files import files_of

    found = read_checkpoint(files_of(path, None), "", path, Extent.LAST)
    if not found.position:
        raise ConfigError(f"{path} has no position of a Kafka source yet")
    if found.problems:
        raise ConfigError(f"{path} is not imported: {'; '.join(found.problems)}")
    metadata = f"spark query {found.query_id} batch {found.batch}"
    return [FileOffset(*place, offset, metadata=metadata) for place, offset in sorted(found.position.items())]


def _check(path: Path, each: FileOffset) -> None:
    epoch = each.leader_epoch
    if (
        not each.topic
        or not -1 <= epoch <= INT32_MAX
        or not 0 <= each.partition <= INT32_MAX
        or not 0 <= each.offset <= INT64_MAX
    ):
        raise ConfigError(
            f"{path}: topic {each.topic!r}, partition {each.partition}, offset {each.offset} is not valid"
        )


def _read_json(path: Path, text: str) -> list[FileOffset]:
    try:
        rows = msgspec.json.decode(text, type=list[_JsonRow])
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{path} is not a JSON array of offsets: {error}") from error
    return [
        FileOffset(
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


def _read_csv(path: Path, text: str) -> list[FileOffset]:
    reader = csv.reader(io.StringIO(text), skipinitialspace=True, strict=True)
    try:
        return [_csv_row(row) for row in reader if row]
    except (csv.Error, ValueError) as error:
        raise ConfigError(
            f"{path}, line {reader.line_num}: expected topic,partition,offset or group,topic,partition,offset ({error})"
        ) from error


def _csv_row(row: Sequence[str]) -> FileOffset:
    if len(row) not in (3, 4):
        raise ValueError(f"there are {len(row)} fields")
    group = row[0] if len(row) == 4 else None
    topic, partition, offset = (field.strip() for field in row[-3:])
    for number in (partition, offset):
        if not is_number(number, 0, INT64_MAX):
            raise ValueError(f"{number[:30]!r} is not a number")
    return FileOffset(topic, int(partition), int(offset), group)
