"""Share partitions move with the leaders of their partitions, and wait for the share coordinator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kohort.machine.ports import SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch
from tests.broker.shares.members import Member, configure, initialize, sharing, state_of
from tests.broker.virtual_cluster import VirtualCluster

ACCEPT, RELEASE, REJECT = 1, 2, 3


class Held:
    """A `Persister` that has its calls wait, or fail, when it is told to."""

    def __init__(self, harness: Harness) -> None:
        services = harness.broker.share_services
        self._below = services.persister
        services.persister = self
        self.error: CoordinatorError | None = None
        self.waiting: list[Callable[[], None]] | None = None
        self.written: list[SharePartitionState] = []

    def _call(self, begin: Callable[[], None]) -> None:
        if self.waiting is None:
            begin()
        else:
            self.waiting.append(begin)

    def let_go(self) -> None:
        waiting, self.waiting = self.waiting, None
        for begin in waiting or ():
            begin()

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Any, /) -> None:
        self._below.initialize(key, state_epoch, start_offset, done)

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Any, /) -> None:
        error = self.error
        self._call(lambda: done(error) if error else self._below.read(key, leader_epoch, done))

    def write(self, key: SharePartitionKey, state: SharePartitionState, done: Any, /) -> None:
        error = self.error
        self.written.append(state)
        self._call(lambda: done(error) if error else self._below.write(key, state, done))

    def delete(self, key: SharePartitionKey, done: Any, /) -> None:
        self._below.delete(key, done)

    def summary(self, key: SharePartitionKey, done: Any, /) -> None:
        self._below.summary(key, done)


@pytest.fixture
def cluster() -> VirtualCluster:
    cluster = VirtualCluster(share_coordinator_state_topic_num_partitions="1")
    cluster.coordinators.persister = cluster.hosted.persister
    configure(cluster, share_auto_offset_reset="earliest")
    return cluster


def topic_of(cluster: VirtualCluster, *replicas: int) -> Any:
    cluster.assign("t", replicas)
    topic = cluster.broker.catalog.topic("t")
    assert topic is not None
    initialize(cluster, topic.topic_id)
    cluster.node.advance(2000)
    return topic.topic_id


def produced(cluster: VirtualCluster, value: bytes) -> None:
    (leader,) = (node_id for node_id in cluster.running if cluster.state("t").leader_id == node_id)
    partition = cluster.broker.partitions.find("t", 0)
    assert partition is not None
    assert partition.leader_id == leader
    partition.append(batch(value))
    cluster.node.settle()


def test_what_was_in_flight_is_available_at_the_next_leader_with_the_counts_last_written(
    cluster: VirtualCluster,
) -> None:
    topic_id = topic_of(cluster, 2, 3)
    for value in (b"a", b"b", b"c"):
        produced(cluster, value)
    member, other = Member(cluster, "m", topic_id), Member(cluster, "n", topic_id)
    assert member.acquired(member.begin(at=2)) == [(0, 2, 1)]
    acknowledged = member.begin_acknowledging(0, 0, ACCEPT, at=2)
    released = member.begin_acknowledging(1, 1, RELEASE, at=2)
    cluster.node.settle()
    assert [answer[0].responses[0].partitions[0].error_code for answer in (acknowledged, released)] == [0, 0]
    assert other.acquired(other.begin(at=2)) == [(1, 1, 2)]
    waiting = other.begin(wait_ms=10_000, at=2)
    assert not waiting

    cluster.stop(2)
    (refused,) = waiting
    (partition,) = refused.responses[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.current_leader.leader_id == 3
    assert [endpoint.node_id for endpoint in refused.node_endpoints] == [3]
    late = member.begin_acknowledging(2, 2, ACCEPT, at=2)
    cluster.node.settle()
    (partition,) = late[0].responses[0].partitions
    assert (partition.error_code, partition.current_leader.leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 3)

    member.epoch = 0
    answers = member.begin(wait_ms=1000, at=3)
    cluster.node.settle()
    assert member.acquired(answers) == [(1, 1, 2), (2, 2, 1)]
    assert state_of(cluster, topic_id, at=3) == (1, 2)


def test_a_replica_that_does_not_lead_refuses(cluster: VirtualCluster) -> None:
    topic_id = topic_of(cluster, 2, 3)
    member = Member(cluster, "m", topic_id)
    for at in (3, 1):
        member.epoch = 0
        member.acquired(member.begin(at=at))
        assert member.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert member.answer.node_endpoints[0].node_id == 2


def test_a_stopped_broker_forgets_sessions_and_records(cluster: VirtualCluster) -> None:
    topic_id = topic_of(cluster, 2, 3)
    produced(cluster, b"a")
    member = Member(cluster, "m", topic_id)
    member.acquired(member.begin(at=2))
    cluster.broker.apis[2].on_stopped()
    assert len(cluster.broker.apis[2].shares.leader) == 0
    (refused,) = member.begin(at=2)
    assert refused.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@pytest.fixture
def harness() -> Harness:
    harness = sharing()
    configure(harness, share_auto_offset_reset="earliest")
    return harness


def test_a_fetch_waits_for_the_state(harness: Harness) -> None:
    topic_id = harness.create("t")
    harness.write("t", b"a")
    member = Member(harness, "m", topic_id)
    persister = Held(harness)
    persister.waiting = []
    waiting = member.begin(wait_ms=5000)
    harness.node.advance(1000)
    assert not waiting
    persister.let_go()
    harness.node.settle()
    assert member.acquired(waiting) == [(0, 0, 1)]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_errors_of_the_share_coordinator(harness: Harness, error: ErrorCode, code: ErrorCode) -> None:
    topic_id = harness.create("t")
    harness.write("t", b"a")
    member = Member(harness, "m", topic_id)
    persister = Held(harness)
    persister.error = CoordinatorError(error, "no")
    assert member.fetch() == []
    assert member.error == code

    persister.error = None
    assert member.fetch() == [(0, 0, 1)]
    persister.error = CoordinatorError(error, "no")
    assert member.acknowledge(0, 0, ACCEPT) == code
    persister.error = None
    is_dropped = code not in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
    # What is dropped is read again; else the member still holds its record.
    assert member.fetch() == ([(0, 0, 1)] if is_dropped else [])
    assert member.acknowledge(0, 0, ACCEPT) == ErrorCode.NONE


def test_a_lock_that_ends_while_a_write_fails(harness: Harness) -> None:
    configure(harness, share_delivery_count_limit="2")
    topic_id = harness.create("t")
    harness.write("t", b"a")
    member = Member(harness, "m", topic_id)
    assert member.fetch() == [(0, 0, 1)]
    persister = Held(harness)
    persister.waiting, persister.error = [], CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no")
    acknowledged = member.begin_acknowledging(0, 0, ACCEPT)
    harness.node.advance(31_000)
    assert not acknowledged
    persister.error = None
    persister.let_go()
    harness.node.settle()
    assert acknowledged[0].responses[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert member.fetch() == [(0, 0, 2)]


def test_a_client_that_disconnects_waits_no_more_and_gets_nothing(harness: Harness) -> None:
    topic_id = harness.create("t")
    member = Member(harness, "m", topic_id)
    assert member.fetch() == []
    waiting = member.begin(wait_ms=5000)
    for forget in harness.parked:
        forget()
    member.disconnect()
    harness.write("t", b"a")
    harness.node.advance(6000)
    assert not waiting
    other = Member(harness, "n", topic_id)
    assert other.fetch() == [(0, 0, 1)]


def test_the_last_session_that_ends_with_its_connection_takes_the_share_partitions_along(harness: Harness) -> None:
    topic_id = harness.create("t")
    one, two = Member(harness, "m", topic_id), Member(harness, "n", topic_id)
    one.fetch()
    two.fetch()
    leader = harness.broker.apis[1].shares.leader
    one.disconnect()
    assert len(leader) == 1
    two.disconnect()
    assert len(leader) == 0


def test_deleted_topics_take_their_share_partitions_along(harness: Harness) -> None:
    topic_id = harness.create("t")
    member = Member(harness, "m", topic_id)
    member.fetch()
    waiting = member.begin(wait_ms=5000)
    request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name="t")], timeout_ms=1000)
    harness.ask(ApiKey.DELETE_TOPICS, request)
    assert len(harness.broker.apis[1].shares.leader) == 0
    assert member.acquired(waiting) == []
    assert member.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_session_without_room_for_its_partitions_is_refused_and_others_are_not(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = harness.broker.apis[1].shares.sessions
    monkeypatch.setattr(sessions, "_partitions_max", 1)
    one, two = Member(harness, "m", harness.create("t")), Member(harness, "n", harness.create("u"))
    assert one.fetch() == []
    answers = two.begin(wait_ms=700)
    harness.node.advance(699)
    assert not answers
    harness.node.advance(1)
    assert answers[0].error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert len(sessions) == 1
    one.disconnect()
    assert sessions.partitions == 0
    two.epoch = 0
    assert two.fetch() == []
