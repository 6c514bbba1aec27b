"""
Version differences of OffsetFetch, beyond missing fields.

The handler knows the newest version only: requests are upgraded to it here, and responses downgraded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kohort.wire import messages as m

FETCH_TOP_LEVEL_ERROR_SINCE: Final = 2
FETCH_GROUPS_SINCE: Final = 8


def upgrade_fetch(request: m.OffsetFetchRequest, api_version: int) -> Sequence[m.OffsetFetchRequestGroup]:
    """Up to version 7 the request names one group."""
    if api_version >= FETCH_GROUPS_SINCE:
        return request.groups
    topics = None
    if request.topics is not None:
        topics = [
            m.OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return (m.OffsetFetchRequestGroup(group_id=request.group_id, topics=topics),)


def downgrade_fetch(groups: Sequence[m.OffsetFetchResponseGroup], api_version: int) -> m.OffsetFetchResponse:
    """
    Up to version 7 the response of the one group is at the top.

    Version 1 has no error there: each partition has it. Partitions of a refused group have it in any version; they are removed
    from 2 on.
    """
    if api_version >= FETCH_GROUPS_SINCE:
        return m.OffsetFetchResponse(groups=[_without_refused_topics(group) for group in groups])
    (group,) = groups
    if api_version >= FETCH_TOP_LEVEL_ERROR_SINCE:
        group = _without_refused_topics(group)
    return m.OffsetFetchResponse(
        error_code=group.error_code, topics=[_downgrade_topic(topic) for topic in group.topics]
    )


def _without_refused_topics(group: m.OffsetFetchResponseGroup) -> m.OffsetFetchResponseGroup:
    return msgspec.structs.replace(group, topics=()) if group.error_code and group.topics else group


def _downgrade_topic(topic: m.OffsetFetchResponseTopics) -> m.OffsetFetchResponseTopic:
    partitions = [
        m.OffsetFetchResponsePartition(
            partition_index=partition.partition_index,
            committed_offset=partition.committed_offset,
            committed_leader_epoch=partition.committed_leader_epoch,
            metadata=partition.metadata,
            error_code=partition.error_code,
        )
        for partition in topic.partitions
    ]
    return m.OffsetFetchResponseTopic(name=topic.name, partitions=partitions)
