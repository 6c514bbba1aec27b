"""Partitions that a live member owns, and of which its group has no committed offset: Kafka's tool shows them with a dash."""

from typing import Any

from kohort.pipeline.engines.dispatch import fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS
from kohort.pipeline.tables.groups.group_history import CLASSIC, CONSUMER

_PLACE = ("group", "topic", "partition")


@over_frames
def with_uncommitted(latest: Any, owned: Any) -> Any:
    """
    Add a row without an offset for each partition that a member owns and its group has not committed.

    Tasks of streams groups name no topic, and share groups commit no offsets.

    Args:
        latest: as `latest_offsets` returns them.
        owned: as `memberships.assignment_intervals` returns them, with the names of topics.
    """
    is_there = fn.col("until_ms").isNull() & fn.col("topic").isNotNull()
    now = owned.where(is_there & fn.col("group_type").isin(CLASSIC, CONSUMER)).select(*_PLACE).distinct()
    missing = now.join(latest.select(*_PLACE), on=[*_PLACE], how="left_anti")
    return latest.unionByName(missing, allowMissingColumns=True).select(*COLUMNS["offsets"])
