"""
Requests with a timeout of 0 or below, as a node of Apache Kafka 4.2.1 answers them.

Kafka's controller drops what has expired: the whole request is answered REQUEST_TIMED_OUT, and nothing is done.
A timeout that is one of the followers, or of a wait for others, does not keep the broker from doing what it is asked.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch, produce_request

LATE = ErrorCode.REQUEST_TIMED_OUT
INVALID = ErrorCode.INVALID_REQUEST
TOPIC_ID = UUID(int=7)
TIMEOUTS = (0, -1, -(1 << 31))

Codes = list[tuple[Any, int, str | None]]


def create(harness: Harness, timeout_ms: int, *names: str, **what: Any) -> Codes:
    topics = [m.CreateTopicsRequestCreatableTopic(name=n, num_partitions=1, replication_factor=1) for n in names]
    request = m.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, **what)
    return [
        (each.name, each.error_code, each.error_message) for each in harness.ask(ApiKey.CREATE_TOPICS, request).topics
    ]


def grow(harness: Harness, timeout_ms: int, *names: str, **what: Any) -> Codes:
    topics = [m.CreatePartitionsTopic(name=name, count=3, assignments=None) for name in names]
    request = m.CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, **what)
    results = harness.ask(ApiKey.CREATE_PARTITIONS, request).results
    return [(each.name, each.error_code, each.error_message) for each in results]


def delete(harness: Harness, timeout_ms: int, *topics: tuple[str | None, UUID | None]) -> Codes:
    states = [m.DeleteTopicsRequestDeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics]
    results = harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topics=states, timeout_ms=timeout_ms)).responses
    return [((each.name, each.topic_id), each.error_code, each.error_message) for each in results]


def reassign(harness: Harness, timeout_ms: int, *names: str) -> tuple[int, str | None, Codes]:
    wanted = m.AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=[1])
    topics = [m.AlterPartitionReassignmentsRequestReassignableTopic(name=name, partitions=[wanted]) for name in names]
    request = m.AlterPartitionReassignmentsRequest(topics=topics, timeout_ms=timeout_ms)
    answer = harness.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request)
    found = [
        (topic.name, each.error_code, each.error_message) for topic in answer.responses for each in topic.partitions
    ]
    return answer.error_code, answer.error_message, found


def elect(harness: Harness, timeout_ms: int, *topics: str, kind: int = 0) -> tuple[int, list[int]]:
    wanted = [m.ElectLeadersRequestTopicPartitions(topic=name, partitions=[0]) for name in topics]
    request = m.ElectLeadersRequest(election_type=kind, topic_partitions=wanted, timeout_ms=timeout_ms)
    answer = harness.ask(ApiKey.ELECT_LEADERS, request)
    codes = [each.error_code for topic in answer.replica_election_results for each in topic.partition_result]
    return answer.error_code, codes


def late(*subjects: Any) -> Codes:
    return [(each, LATE, None) for each in subjects]


TWICE = "Duplicate topic name."
T, NOPE, BY_ID, NEITHER = ("t", None), ("nope", None), (None, TOPIC_ID), (None, None)

# fmt: off
DROPPED: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any]] = {  # the request, what it names, the answer
    "create":                 (create, ("n", "t"), late("n", "t")),
    "create, some refused":   (create, ("n", "a b", "m", "m"), late("n", "a b", "m", "m")),
    "create, all refused":    (create, ("m", "m"), [("m", INVALID, TWICE)]),
    "create, validate only":  (partial(create, validate_only=True), ("n",), late("n")),
    "create nothing":         (create, (), []),
    "grow":                   (grow, ("t", "nope", "t"), late("t", "nope", "t")),
    "grow, all refused":      (grow, ("t", "t"), [("t", INVALID, TWICE)]),
    "grow, validate only":    (partial(grow, validate_only=True), ("t",), late("t")),
    "grow nothing":           (grow, (), []),
    "delete":                 (delete, (T, NOPE), late(T, NOPE)),
    "delete by id":           (delete, (BY_ID,), late(BY_ID)),
    "delete, some refused":   (delete, (T, NEITHER), late(T, NEITHER)),
    "delete, all refused":    (delete, (T, T), [(T, INVALID, TWICE)]),
    "delete nothing":         (delete, (), []),
    "reassign":               (reassign, ("t", "nope"), (LATE, None, late("t", "nope"))),
    "reassign nothing":       (reassign, (), (0, "", [])),
    "elect":                  (elect, ("t", "nope"), (LATE, [LATE, LATE])),
    "elect, unknown kind":    (partial(elect, kind=7), ("t",), (LATE, [LATE])),
    "elect nothing":          (elect, (), (0, [])),
}
# fmt: on


@pytest.mark.parametrize("timeout_ms", TIMEOUTS)
@pytest.mark.parametrize("what", DROPPED)
def test_the_controller_drops_what_has_expired(what: str, timeout_ms: int) -> None:
    ask, named, expected = DROPPED[what]
    harness = Harness()
    topic_id = harness.create("t")
    assert ask(harness, timeout_ms, *named) == expected
    harness.node.settle()
    (topic,) = harness.broker.catalog.topics()
    assert (topic.name, topic.topic_id, topic.partition_count) == ("t", topic_id, 1)


def set_level(harness: Harness, timeout_ms: int) -> list[int]:
    wanted = m.UpdateFeaturesRequestFeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    request = m.UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=[wanted])
    codes = [harness.ask(ApiKey.UPDATE_FEATURES, request).error_code]
    assert harness.broker.features.level("transaction.version") == 1
    return codes


def delete_records(harness: Harness, timeout_ms: int) -> list[tuple[int, int]]:
    partitions = [m.DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (1, -1, 9)]
    topics = [m.DeleteRecordsTopic(name="t", partitions=[each]) for each in partitions]
    found = []
    for topic in topics:
        request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=timeout_ms)
        ((result,),) = [each.partitions for each in harness.ask(ApiKey.DELETE_RECORDS, request).topics]
        found.append((result.error_code, result.low_watermark))
    return found


def produce(harness: Harness, timeout_ms: int) -> list[tuple[int, int]]:
    found = []
    for acks in (-1, 1):
        request = produce_request("t", {0: batch(b"x")}, acks=acks, timeout_ms=timeout_ms)
        (topic,) = harness.ask(ApiKey.PRODUCE, request, version=12).responses
        found += [(each.error_code, each.base_offset) for each in topic.partition_responses]
    return found


def list_offsets(harness: Harness, timeout_ms: int) -> list[tuple[int, int]]:
    asked = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = m.ListOffsetsTopic(name="t", partitions=[asked])
    answer = harness.ask(
        ApiKey.LIST_OFFSETS, m.ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=timeout_ms)
    )
    return [(each.error_code, each.offset) for topic in answer.topics for each in topic.partitions]


def list_reassignments(harness: Harness, timeout_ms: int) -> list[int]:
    request = m.ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=None)
    return [harness.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request).error_code]


def fetch(harness: Harness, timeout_ms: int) -> list[tuple[int, int]]:
    asked = m.FetchRequestFetchPartition(partition=0, fetch_offset=2, partition_max_bytes=100)
    topic = m.FetchRequestFetchTopic(topic="t", topic_id=None, partitions=[asked])
    answer = harness.ask(ApiKey.FETCH, m.FetchRequest(max_wait_ms=timeout_ms, min_bytes=1, topics=[topic]), version=12)
    return [(each.error_code, each.high_watermark) for topic in answer.responses for each in topic.partitions]


# fmt: off
DONE: dict[str, tuple[Callable[[Harness, int], Any], Any]] = {
    "features":      (set_level, [0]),
    "records":       (delete_records, [(0, 1), (0, 2), (ErrorCode.OFFSET_OUT_OF_RANGE, -1)]),
    "produce":       (produce, [(0, 2), (0, 3)]),
    "offsets":       (list_offsets, [(0, 2)]),
    "reassignments": (list_reassignments, [0]),
    "fetch":         (fetch, [(0, 2)]),
}
# fmt: on


@pytest.mark.parametrize("timeout_ms", TIMEOUTS)
@pytest.mark.parametrize("what", DONE)
def test_what_is_done_in_spite_of_it(what: str, timeout_ms: int) -> None:
    ask, expected = DONE[what]
    harness = Harness()
    harness.create("t")
    harness.write("t", b"x", b"y")
    assert ask(harness, timeout_ms) == expected
