"""
Requests with what they leave out: the partitions of a fetch session, all topics of the cluster.

A filter on a topic matches these requests as if they named it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from kohort.broker.apis.request_rules import with_field
from kohort.broker.broker import Broker
from kohort.broker.records.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH
from kohort.control.requests.filters import Call
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import read_header

_NEW: Final = frozenset({INITIAL_EPOCH, FINAL_EPOCH})


def unfolded(broker: Broker, call: Call) -> Any:
    """The request of a call with everything that it is about."""
    request = call.request
    if call.api is ApiKey.FETCH and request.session_epoch not in _NEW:
        return _with_session(broker.apis[call.broker].fetch.sessions.places(request.session_id), request)
    if call.api is ApiKey.METADATA and request.topics is None:
        topics = broker.catalog.topics()
        return with_field(request, "topics", [m.MetadataRequestTopic(name=each.name) for each in topics])
    return request


def _with_session(places: Iterable[tuple[str, UUID | None, int]], request: Any) -> Any:
    found: dict[tuple[str, UUID | None], dict[int, None]] = {}
    for name, topic_id, index in places:
        found.setdefault((name, topic_id), {})[index] = None
    for topic in request.topics:
        found.setdefault((topic.topic, topic.topic_id), {}).update(
            dict.fromkeys(partition.partition for partition in topic.partitions)
        )
    for topic in request.forgotten_topics_data:
        for index in topic.partitions:
            found.get((topic.topic, topic.topic_id), {}).pop(index, None)
    topics = [
        m.FetchRequestFetchTopic(
            topic=name,
            topic_id=topic_id,
            partitions=[m.FetchRequestFetchPartition(partition=index) for index in indexes],
        )
        for (name, topic_id), indexes in found.items()
    ]
    return with_field(request, "topics", topics)


def facts_of_call(api: ApiKey, request: Any) -> dict[str, Any]:
    """The names in a request beside its fields with words: the kind of coordinator, and the producer of its first batch."""
    if api is ApiKey.FIND_COORDINATOR:
        return {"key_type": request.key_type}
    if api is ApiKey.PRODUCE:
        for topic in request.topic_data:
            for partition in topic.partition_data:
                if partition.records is not None and len(partition.records) >= HEADER_BYTES:
                    return {"producer_id": read_header(partition.records).producer_id}
    return {}
