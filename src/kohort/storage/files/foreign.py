"""
Data directories, and partitions in them, that this data directory's owner did not write.

A start truncates, renames and removes files, so it refuses, before it changes a byte, what another broker has written. A
partition is known to be this directory's by the directory id in its `partition.metadata`, which Apache Kafka ignores, or
because the caller knows its topic id.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias
from uuid import UUID

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.storage.files.checkpoint_formats import META_PROPERTIES, PARTITION_METADATA, partition_metadata_of
from kohort.storage.files.checksums import is_commented

IsKnown: TypeAlias = Callable[[TopicPartition, UUID], bool]

_METADATA_LOG: Final = "__cluster_metadata"
_DIRECTORY_ID: Final = re.compile(rb"^directory\.id=(\S+)\s*$", re.MULTILINE)
_INSTEAD: Final = (
    "Nothing was changed. Choose another data directory. `kohort pipeline`, `kohort log dump` and `kohort log verify` read "
    "this one as it is; records and offsets are taken over from the running Apache Kafka by its clients, such as MirrorMaker 2."
)


def refuse_kafka(data_dir: Path, partitions: Iterable[TopicPartition], *, is_owned: bool) -> None:
    """
    Refuse a data directory of Apache Kafka.

    Args:
        is_owned: whether the directory has partitions that only Kohort writes. Then `meta.properties` says nothing: its first
            line, which only Kohort writes, may have been removed by hand.

    Raises:
        ConfigError: Apache Kafka has written the directory.
    """
    for found in partitions:
        if found.topic == _METADATA_LOG:
            raise ConfigError(f"{data_dir} is a data directory of Apache Kafka, which has written {found}. {_INSTEAD}")
    if (data_dir / META_PROPERTIES).exists() and not has_own_properties(data_dir) and not is_owned:
        raise ConfigError(
            f"{data_dir} is a data directory of Apache Kafka, which has written {META_PROPERTIES}. {_INSTEAD}"
        )


def refuse_foreign(data_dir: Path, partitions: Mapping[TopicPartition, Path], is_known: IsKnown) -> None:
    """
    Refuse a data directory with partitions that this directory's owner did not write.

    Args:
        is_known: called with the topic id of a partition without this directory's id; the zero id if the partition has none.

    Raises:
        ConfigError: the directory has such partitions.
    """
    properties = _properties(data_dir)
    match = None if properties is None else _DIRECTORY_ID.search(properties)
    directory_id = None if match is None else match[1].decode("ascii", "replace")
    foreign = []
    for topic_partition, path in partitions.items():
        topic_id, made_in = partition_metadata_of(path)
        if (made_in is None or made_in != directory_id) and not is_known(topic_partition, topic_id):
            foreign.append(path)
    if foreign:
        further = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        raise ConfigError(
            f"{foreign[0]}{further} was not written by the owner of {data_dir}: the catalog does not know the topic id in its "
            f"{PARTITION_METADATA}. Nothing was changed. Move it to another directory; `kohort log dump` and `kohort pipeline` "
            "read it there."
        )


def has_own_properties(data_dir: Path) -> bool:
    """Whether Kohort has written `meta.properties`."""
    return is_commented(_properties(data_dir) or b"")


def _properties(data_dir: Path) -> bytes | None:
    try:
        return (data_dir / META_PROPERTIES).read_bytes()
    except FileNotFoundError:
        return None
