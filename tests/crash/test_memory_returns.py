"""What clients create and delete again leaves no memory behind, although nothing forces a garbage collection."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.broker.telemetry.otlp_messages import gauge, message
from tests.clients.waiting import wait_until
from tests.conftest import LONG
from tests.crash.connection import Connection

ROUNDS = 1_000 if LONG else 60
WARM_UP = 30
GROWTH_MAX = (20 if LONG else 4) << 20
RECORDS = batch(b"v" * 1_000)
NOT_YET = {14, 15, 16, 51}
"""Codes of a coordinator that is loading, or whose transaction is ending."""


def answered(client: Connection, api: ApiKey, version: int, request: Any) -> Any:
    """The answer of a coordinator that is ready."""
    answers: list[Any] = []

    def is_ready() -> bool:
        answers.append(client.ask(api, version, request))
        return answers[-1].error_code not in NOT_YET

    wait_until(is_ready, what="the coordinator")
    return answers[-1]


def topics(client: Connection, number: int) -> None:
    name = f"topic-{number}"
    topic = m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=4, replication_factor=1)
    (made,) = client.ask(ApiKey.CREATE_TOPICS, 5, m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics
    assert made.error_code == 0
    client.ask(ApiKey.PRODUCE, 8, produce_request(name, dict.fromkeys(range(4), RECORDS), timeout_ms=(1 << 31) - 1))
    deleted = m.DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000)
    assert client.ask(ApiKey.DELETE_TOPICS, 5, deleted).responses[0].error_code == 0


def groups(client: Connection, number: int) -> None:
    """A member that joins, commits and leaves, and a group that is deleted with its offsets."""
    group = f"group-{number}"
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=bytes(100))
    join = m.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    joined = answered(client, ApiKey.JOIN_GROUP, 3, join)
    assert joined.error_code == 0
    assignment = m.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=bytes(1_000))
    generation = {"group_id": group, "generation_id": joined.generation_id, "member_id": joined.member_id}
    sync = m.SyncGroupRequest(**generation, assignments=[assignment])
    assert client.ask(ApiKey.SYNC_GROUP, 2, sync).error_code == 0
    offsets = [
        m.OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="x" * 100)
        for index in range(20)
    ]
    commit = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=joined.generation_id,
        member_id=joined.member_id,
        topics=[m.OffsetCommitRequestTopic(name="kept", partitions=offsets)],
    )
    client.ask(ApiKey.OFFSET_COMMIT, 7, commit)
    leaving = m.LeaveGroupRequest(group_id=group, member_id=joined.member_id)
    assert client.ask(ApiKey.LEAVE_GROUP, 2, leaving).error_code == 0
    (result,) = client.ask(ApiKey.DELETE_GROUPS, 1, m.DeleteGroupsRequest(groups_names=[group])).results
    assert result.error_code == 0


def transactions(client: Connection, number: int) -> None:
    """A transaction of a few transactional ids, each of which is known for a week."""
    transactional_id = f"transactional-id-{number % 10}"
    begin = m.InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    producer = answered(client, ApiKey.INIT_PRODUCER_ID, 3, begin)
    assert producer.error_code == 0
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    add = m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[m.AddPartitionsToTxnTopic(name="kept", partitions=[0])],
    )
    client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add)
    records = batch(b"v", base_sequence=0, transactional=True, **identity)
    client.ask(ApiKey.PRODUCE, 8, produce_request("kept", {0: records}, transactional_id=transactional_id))
    end = m.EndTxnRequest(transactional_id=transactional_id, committed=number % 2 == 0, **identity)
    assert client.ask(ApiKey.END_TXN, 3, end).error_code == 0


def connections(client: Connection, _number: int) -> None:
    """A client with a fetch session that ends while it waits."""
    with Connection(client.port) as other:
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = m.FetchRequestFetchTopic(topic="kept", partitions=[partition])
        fetch = m.FetchRequest(topics=[topic], session_id=0, session_epoch=0, max_bytes=1 << 20, max_wait_ms=60_000)
        other.ask(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        other.send(ApiKey.FETCH, 11, fetch)


def instances(client: Connection, number: int) -> None:
    got = client.ask(
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, m.GetTelemetrySubscriptionsRequest(client_instance_id=uuid4())
    )
    push = m.PushTelemetryRequest(
        client_instance_id=got.client_instance_id,
        subscription_id=got.subscription_id,
        metrics=message([gauge("name", 1, label=f"text {number % 7}")]),
    )
    assert client.ask(ApiKey.PUSH_TELEMETRY, 0, push).error_code == 0


KINDS: dict[str, Callable[[Connection, int], None]] = {
    "topics": topics,
    "groups": groups,
    "transactions": transactions,
    "connections": connections,
    "instances": instances,
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell the resident memory")
def test_memory_returns(base: Path) -> None:
    properties = {"group.initial.rebalance.delay.ms": "0", "transaction.state.log.num.partitions": "3"}
    grown: dict[str, int] = {}
    with ServedKohort(base, properties, flush="os") as served, Connection(served.port) as client:
        subscribe(client)
        for kind in (0, 1):
            find = m.FindCoordinatorRequest(key_type=kind, coordinator_keys=["x"])
            wait_until(partial(found, client, find), what="the coordinator")
        topic = m.CreateTopicsRequestCreatableTopic(name="kept", num_partitions=20, replication_factor=1)
        client.ask(ApiKey.CREATE_TOPICS, 5, m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        for name, come_and_go in KINDS.items():
            for number in range(WARM_UP):
                come_and_go(client, number)
            before = served.resident_bytes
            for number in range(WARM_UP, WARM_UP + ROUNDS):
                come_and_go(client, number)
            after = served.resident_bytes
            assert before is not None
            assert after is not None
            grown[name] = after - before
    assert {name: size for name, size in grown.items() if size > GROWTH_MAX} == {}


def found(client: Connection, find: m.FindCoordinatorRequest) -> bool | None:
    (coordinator,) = client.ask(ApiKey.FIND_COORDINATOR, 4, find).coordinators
    return None if coordinator.error_code else True


def subscribe(client: Connection) -> None:
    """Have all clients push all metrics."""
    configs = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
        for key, value in (("metrics", "*"), ("interval.ms", "100"))
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=16, resource_name="all", configs=configs
    )
    client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, m.IncrementalAlterConfigsRequest(resources=[resource]))
