"""
Which offset commits take effect, and which of them is the last: the rules of the tables and of the exporter, without an engine.

A transactional commit takes effect with the COMMIT marker of its producer in the same log partition. ABORT drops it; without a
marker it is pending. Markers identify a producer by its id only, so the next marker of the producer id decides, for all epochs.

Source: Kafka GroupCoordinatorShard.replayEndTransactionMarker, OffsetMetadataManager; KIP-447, KIP-890.
"""

from typing import Any

from kohort.pipeline.decode.schemas import COMMIT

PLAIN = "plain"
COMMITTED = "committed"
ABORTED = "aborted"
PENDING = "pending"
TAKES_EFFECT = (PLAIN, COMMITTED)
"""The fates of commits that count."""

FATE_COLUMNS = (
    "kind",
    "log_partition",
    "log_offset",
    "timestamp_ms",
    "producer_id",
    "transactional",
    "group",
    "tombstone",
    "topic",
    "partition",
    "offset",
    "control",
)
"""Columns of `kind` offset_commit and marker that the rules and their result need."""


def is_commit_marker(control: Any) -> Any:
    """Tell whether a marker lets the commits of its producer take effect; any other marker drops them. Also for columns."""
    return control == COMMIT


def replaces(log_offset: int, last_log_offset: int) -> bool:
    """
    Tell whether a commit that takes effect replaces the last one of its key: if its record is behind in the log.

    A commit of a transaction that ended after a later plain commit does not move the group back.

    Source: Kafka OffsetMetadataManager.replayEndTransactionMarker (the pending record replaces an older one only).
    """
    return log_offset >= last_log_offset
