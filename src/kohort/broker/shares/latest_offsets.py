"""The ends of partitions, as the group coordinator asks for them: the lag of share groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.broker.partitions.partitions import Partition
from kohort.model.errors import CoordinatorError, ErrorCode, StorageError
from kohort.model.ids import TopicPartition


class LocalLatestOffsets:
    """
    The `kohort.machine.ports.LatestOffsets` of one process.

    Args:
        find: the partition of a topic's name and a number; None if there is none. Raises StorageError.
    """

    def __init__(self, find: Callable[[str, int], Partition | None]) -> None:
        self._find: Final = find

    def latest_offset(self, topic_partition: TopicPartition, done: Callable[[int | CoordinatorError], None], /) -> None:
        try:
            found = self._find(*topic_partition)
        except StorageError as error:
            done(CoordinatorError(error.code))
        else:
            done(CoordinatorError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if found is None else found.log.high_watermark)
