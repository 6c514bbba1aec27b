"""The operations that the guide names are enough for the requests of the usual programs, and no more is needed."""

from collections.abc import Sequence
from typing import Any

import pytest

from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.access.json_messages import json_of
from tests.broker.access.matrix import errors_in
from tests.broker.access.secured import Secured
from tests.broker.harness import batch, produce_request

MEMBER_ID_REQUIRED = 79


@pytest.fixture
def broker() -> Secured:
    made = Secured(
        offsets_topic_num_partitions="1",
        transaction_state_log_num_partitions="1",
        group_initial_rebalance_delay_ms="0",
    )
    made.create("in")
    made.create("out")
    made.write("in", b"x")
    return made


def done(broker: Secured, api: ApiKey, request: Any, version: int | None = None, accepted: Sequence[int] = ()) -> Any:
    """The answer to alice, which has no error. What is not ready yet is asked for again."""
    version = broker.broker.versions[api][1] if version is None else version
    while True:
        answer = broker.ask_as("alice", api, request, version)
        codes = set(errors_in(json_of(api, version, answer))) - {0, *accepted}
        if not codes & {14, 15, 51}:
            assert not codes, (api, answer)
            return answer
        broker.node.advance(50)


def finds(broker: Secured, kind: int, key: str) -> None:
    done(broker, ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))


def describes(broker: Secured, topic: str) -> None:
    done(broker, ApiKey.METADATA, m.MetadataRequest(topics=[m.MetadataRequestTopic(name=topic)]), 12)


def test_an_idempotent_producer_needs_to_write(broker: Secured) -> None:
    broker.authorizer.allow("WRITE", "TOPIC", "out")
    describes(broker, "out")
    begun = done(
        broker, ApiKey.INIT_PRODUCER_ID, m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    )
    records = batch(b"x", producer_id=begun.producer_id, producer_epoch=begun.producer_epoch, base_sequence=0)
    done(broker, ApiKey.PRODUCE, produce_request("out", {0: records}), 12)


def test_a_consumer_of_a_group_needs_to_read(broker: Secured) -> None:
    broker.authorizer.allow("READ", "TOPIC", "in")
    broker.authorizer.allow("READ", "GROUP", "g")
    consume(broker)


def consume(broker: Secured) -> tuple[int, str]:
    """The generation and the id of a member that has read and committed."""
    finds(broker, 0, "g")
    describes(broker, "in")
    what: dict[str, Any] = {"protocol_type": "consumer", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    protocols = [m.JoinGroupRequestProtocol(name="range", metadata=b"")]
    joining = m.JoinGroupRequest(group_id="g", protocols=protocols, **what)
    member_id = done(broker, ApiKey.JOIN_GROUP, joining, accepted=(MEMBER_ID_REQUIRED,)).member_id
    joining = m.JoinGroupRequest(group_id="g", member_id=member_id, protocols=protocols, **what)
    joined = done(broker, ApiKey.JOIN_GROUP, joining)
    who: dict[str, Any] = {"group_id": "g", "generation_id": joined.generation_id, "member_id": member_id}
    assigned = [m.SyncGroupRequestAssignment(member_id=member_id, assignment=b"a")]
    protocol: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"}
    done(broker, ApiKey.SYNC_GROUP, m.SyncGroupRequest(assignments=assigned, **who, **protocol))
    done(broker, ApiKey.HEARTBEAT, m.HeartbeatRequest(**who))
    place = m.ListOffsetsPartition(partition_index=0, timestamp=-2)
    listing = m.ListOffsetsRequest(replica_id=-1, topics=[m.ListOffsetsTopic(name="in", partitions=[place])])
    done(broker, ApiKey.LIST_OFFSETS, listing)
    wanted = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    fetching = m.FetchRequest(
        session_epoch=-1, min_bytes=1, topics=[m.FetchRequestFetchTopic(topic="in", partitions=[wanted])]
    )
    done(broker, ApiKey.FETCH, fetching, 12)
    commit = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [m.OffsetCommitRequestTopic(name="in", partitions=[commit])]
    member: dict[str, Any] = {"generation_id_or_member_epoch": joined.generation_id, "member_id": member_id}
    done(broker, ApiKey.OFFSET_COMMIT, m.OffsetCommitRequest(group_id="g", topics=topics, **member), 9)
    named = [m.OffsetFetchRequestTopics(name="in", partition_indexes=[0])]
    group = m.OffsetFetchRequestGroup(group_id="g", topics=named)
    done(broker, ApiKey.OFFSET_FETCH, m.OffsetFetchRequest(groups=[group]), 9)
    return joined.generation_id, member_id


def test_a_program_that_works_exactly_once_needs_to_read_and_to_write(broker: Secured) -> None:
    rules = [
        ("READ", "TOPIC", "in"),
        ("READ", "GROUP", "g"),
        ("WRITE", "TOPIC", "out"),
        ("WRITE", "TRANSACTIONAL_ID", "x"),
    ]
    for rule in rules:
        broker.authorizer.allow(*rule)
    generation, member_id = consume(broker)
    finds(broker, 1, "x")
    begun = done(
        broker, ApiKey.INIT_PRODUCER_ID, m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    )
    producer: dict[str, Any] = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    records = batch(b"x", base_sequence=0, transactional=True, **producer)
    done(broker, ApiKey.PRODUCE, produce_request("out", {0: records}, transactional_id="x"), 12)
    commit = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    committing = m.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[m.TxnOffsetCommitRequestTopic(name="in", partitions=[commit])],
        **producer,
    )
    done(broker, ApiKey.TXN_OFFSET_COMMIT, committing, 5)
    done(broker, ApiKey.END_TXN, m.EndTxnRequest(transactional_id="x", committed=True, **producer))


def test_a_view_of_lag_needs_to_describe(broker: Secured) -> None:
    for rule in (("READ", "TOPIC", "in"), ("READ", "GROUP", "g")):
        broker.authorizer.allow(*rule)
    consume(broker)
    broker.authorizer.rules.clear()
    for rule in (("DESCRIBE", "TOPIC", "in"), ("DESCRIBE", "GROUP", "g")):
        broker.authorizer.allow(*rule)
    listed = done(broker, ApiKey.LIST_GROUPS, m.ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["g"]
    done(broker, ApiKey.DESCRIBE_GROUPS, m.DescribeGroupsRequest(groups=["g"]))
    group = m.OffsetFetchRequestGroup(group_id="g", topics=None)
    (found,) = done(broker, ApiKey.OFFSET_FETCH, m.OffsetFetchRequest(groups=[group]), 9).groups
    assert [topic.name for topic in found.topics] == ["in"]
    place = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
    listing = m.ListOffsetsRequest(replica_id=-1, topics=[m.ListOffsetsTopic(name="in", partitions=[place])])
    done(broker, ApiKey.LIST_OFFSETS, listing)
