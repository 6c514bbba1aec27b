"""
When a change of permissions takes effect: at the next request; a request that waits was decided when it arrived.

Source: Apache Kafka 4.4.0. Its handlers decide before a request waits, and a session of Fetch is decided at each request.
"""

from typing import Any
from uuid import UUID

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.principals import Principal
from kohort.server.requests.dispatch import Dispatch
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import response_reader
from kohort.wire.templates import Memory, TemplateCache, TemplateMatch
from tests.broker.access.secured import Secured
from tests.broker.harness import Asker, batch

REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_REFUSED = ErrorCode.GROUP_AUTHORIZATION_FAILED
LARGE = 300
"""Partitions of a fetch session that visits only those with news."""
RESOLVED_AT_LATEST_MS = 20_000
REFRESH_MS = 10 * 60_000


@pytest.fixture
def broker() -> Secured:
    made = Secured(group_initial_rebalance_delay_ms="3000", offsets_topic_num_partitions="1")
    made.create("t")
    made.create("u")
    for group in ("g", "joined", "matched"):
        find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
        while made.ask_as("admin", ApiKey.FIND_COORDINATOR, find).coordinators[0].error_code:
            made.node.advance(100)
        made.authorizer.allow("READ", "GROUP", group)
    return made


# Commits


def commit(broker: Secured, offset: int) -> int:
    partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [m.OffsetCommitRequestTopic(name="t", partitions=[partition])]
    request = m.OffsetCommitRequest(group_id="g", topics=topics)
    (topic,) = broker.ask_as("alice", ApiKey.OFFSET_COMMIT, request, 9).topics
    return int(topic.partitions[0].error_code)


def test_a_repeated_commit_is_decided_each_time(broker: Secured) -> None:
    broker.authorizer.allow("READ", "TOPIC", "t")
    assert [commit(broker, offset) for offset in (1, 2)] == [0, 0]
    broker.authorizer.deny("READ", "TOPIC", "t")
    assert commit(broker, 3) == REFUSED
    broker.authorizer.rules.pop()
    assert commit(broker, 4) == 0
    broker.authorizer.deny("READ", "GROUP", "g")
    assert commit(broker, 5) == GROUP_REFUSED


def test_a_commit_that_a_template_recognises_is_decided_after_each_change(broker: Secured) -> None:
    """Templates of repeated requests are kept with an authorizer, and so is what is refused of a request."""
    route = Dispatch(broker.broker.handlers, broker.broker.versions).route(ApiKey.OFFSET_COMMIT, 9)
    assert route is not None
    assert route.read_repeated is not None
    cache = TemplateCache(Memory())
    asker = Asker(9, principal=Principal("alice"))

    def repeat(offset: int) -> tuple[bool, dict[str, int]]:
        """Whether the commit was recognised, and the errors of its topics."""
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [m.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in ("t", "u")]
        request = m.OffsetCommitRequest(group_id="g", topics=topics)
        frame = request_encoder(ApiKey.OFFSET_COMMIT, 9)(7, "alice", request)[4:]
        assert route is not None
        assert route.read_repeated is not None
        read = route.read_repeated(frame, read_request_header(frame)[4], cache)
        answers: list[Any] = []
        response = route.handler(read, asker, answers.append)
        broker.node.settle()
        encoded = route.encode(7, answers[0] if response is None else response)
        answer = response_reader(ApiKey.OFFSET_COMMIT, 9)(encoded, 9)
        return type(read) is TemplateMatch, {topic.name: topic.partitions[0].error_code for topic in answer.topics}

    for name in ("t", "u"):
        broker.authorizer.allow("READ", "TOPIC", name)
    assert [repeat(offset) for offset in (1, 2, 3)][-1] == (True, {"t": 0, "u": 0})
    broker.authorizer.asked.clear()
    assert repeat(3) == (True, {"t": 0, "u": 0})
    assert broker.authorizer.asked == []
    broker.authorizer.logs_permissions = True
    assert repeat(3) == (True, {"t": 0, "u": 0})
    assert [name for _, _, _, name, _ in broker.authorizer.asked] == ["g", "t", "u"]
    broker.authorizer.logs_permissions = False
    broker.authorizer.deny("READ", "TOPIC", "t")
    broker.authorizer.asked.clear()
    assert repeat(4) == (True, {"t": REFUSED, "u": 0})
    logged = [name for _, _, _, name, logs in broker.authorizer.asked if logs]
    assert sorted(logged) == ["g", "t", "u"], "a refusal is logged once"
    assert committed(broker) == {"t": 3, "u": 4}
    broker.authorizer.rules.pop()
    assert repeat(5) == (True, {"t": 0, "u": 0})
    broker.authorizer.deny("READ", "GROUP", "g")
    assert repeat(6) == (True, {"t": GROUP_REFUSED, "u": GROUP_REFUSED})
    assert committed(broker) == {"t": 5, "u": 5}


def test_a_repeated_fetch_of_offsets_is_decided_each_time(broker: Secured) -> None:
    broker.authorizer.allow("READ", "TOPIC", "t")
    broker.authorizer.allow("DESCRIBE", "TOPIC", "t")
    assert commit(broker, 7) == 0
    route = Dispatch(broker.broker.handlers, broker.broker.versions).route(ApiKey.OFFSET_FETCH, 9)
    assert route is not None
    assert route.read_repeated is not None
    cache = TemplateCache(Memory())
    topic = m.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=[topic])])
    frame = request_encoder(ApiKey.OFFSET_FETCH, 9)(7, "alice", request)[4:]
    found = []
    for is_denied in (False, False, False, True, False):
        if is_denied:
            broker.authorizer.deny("DESCRIBE", "TOPIC", "t")
        read = route.read_repeated(frame, read_request_header(frame)[4], cache)
        response = route.handler(read, Asker(9, principal=Principal("alice")), lambda _: None)
        (answered,) = (
            response_reader(ApiKey.OFFSET_FETCH, 9)(route.encode(7, response), 9).groups[0].topics[0].partitions
        )
        found.append((type(read) is TemplateMatch, answered.committed_offset, answered.error_code))
        if is_denied:
            broker.authorizer.rules.pop()
    assert found == [(False, 7, 0), (False, 7, 0), (True, 7, 0), (True, -1, REFUSED), (True, 7, 0)]


def committed(broker: Secured) -> dict[str, int]:
    request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = broker.ask_as("admin", ApiKey.OFFSET_FETCH, request, 9).groups
    return {topic.name: topic.partitions[0].committed_offset for topic in group.topics}


# Fetches


def fetch_request(*topics: str, session_id: int = 0, epoch: int = -1, wait_ms: int = 0, partitions: int = 1) -> Any:
    wanted = [
        m.FetchRequestFetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return m.FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[m.FetchRequestFetchTopic(topic=topic, partitions=wanted) for topic in topics],
    )


def answered(response: m.FetchResponse) -> dict[tuple[str, int], tuple[int, bool]]:
    """By partition: its error, and whether there are records."""
    return {
        (topic.topic, partition.partition_index): (partition.error_code, bool(partition.records))
        for topic in response.responses
        for partition in topic.partitions
    }


def fetch(broker: Secured, request: Any, user: str = "alice") -> m.FetchResponse:
    found: m.FetchResponse = broker.ask_as(user, ApiKey.FETCH, request, 12)
    return found


def test_a_fetch_that_waits_was_decided_when_it_arrived(broker: Secured) -> None:
    broker.authorizer.allow("READ", "TOPIC", "t")
    waiting = broker.begin_as("alice", ApiKey.FETCH, fetch_request("t", wait_ms=30_000), 12)
    assert not waiting
    broker.authorizer.deny("READ", "TOPIC", "t")
    broker.write("t", b"x")
    broker.node.settle()
    (response,) = waiting
    assert answered(response) == {("t", 0): (0, True)}
    assert answered(fetch(broker, fetch_request("t"))) == {("t", 0): (REFUSED, False)}


def test_a_fetch_without_an_allowed_partition_does_not_wait(broker: Secured) -> None:
    (response,) = broker.begin_as("alice", ApiKey.FETCH, fetch_request("t", "u", wait_ms=30_000), 12)
    assert answered(response) == {("t", 0): (REFUSED, False), ("u", 0): (REFUSED, False)}


def test_a_session_is_decided_at_each_request_and_for_its_user(broker: Secured) -> None:
    broker.authorizer.allow("READ", "TOPIC", "t")
    broker.authorizer.allow("READ", "TOPIC", "u")
    first = fetch(broker, fetch_request("t", "u", epoch=0))
    assert {code for code, _ in answered(first).values()} == {0}
    broker.authorizer.deny("READ", "TOPIC", "t")
    second = fetch(broker, fetch_request(session_id=first.session_id, epoch=1))
    assert answered(second) == {("t", 0): (REFUSED, False)}
    broker.authorizer.rules.pop()
    broker.write("t", b"x")
    third = fetch(broker, fetch_request(session_id=first.session_id, epoch=2))
    assert answered(third) == {("t", 0): (0, True)}
    stolen = fetch(broker, fetch_request(session_id=first.session_id, epoch=3), user="bob")
    assert answered(stolen) == {("t", 0): (REFUSED, False), ("u", 0): (REFUSED, False)}


def test_a_large_session_gives_nothing_that_was_revoked(broker: Secured) -> None:
    """A partition without news is not visited; it is refused when it has some."""
    broker.create("large", LARGE)
    broker.authorizer.allow("READ", "TOPIC", "large")
    first = fetch(broker, fetch_request("large", epoch=0, partitions=LARGE))
    assert first.session_id
    assert len(answered(first)) == LARGE
    broker.authorizer.deny("READ", "TOPIC", "large")
    broker.write("large", b"x", partition=7)
    second = fetch(broker, fetch_request(session_id=first.session_id, epoch=1))
    assert answered(second) == {("large", 7): (REFUSED, False)}
    broker.authorizer.rules.pop()
    third = fetch(broker, fetch_request(session_id=first.session_id, epoch=2))
    assert answered(third) == {("large", 7): (0, True)}


# Groups


def test_a_join_that_waits_was_decided_when_it_arrived(broker: Secured) -> None:
    protocols = [m.JoinGroupRequestProtocol(name="range", metadata=b"")]
    what: dict[str, Any] = {"protocol_type": "consumer", "protocols": protocols, "session_timeout_ms": 10_000}
    request = m.JoinGroupRequest(group_id="joined", rebalance_timeout_ms=10_000, **what)
    waiting = broker.begin_as("alice", ApiKey.JOIN_GROUP, request, 3)
    assert not waiting
    broker.authorizer.deny("READ", "GROUP", "joined")
    broker.node.advance(4_000)
    (joined,) = waiting
    assert joined.error_code == 0
    sync = m.SyncGroupRequest(group_id="joined", generation_id=joined.generation_id, member_id=joined.member_id)
    assert broker.ask_as("alice", ApiKey.SYNC_GROUP, sync, 3).error_code == GROUP_REFUSED


def beat(broker: Secured, epoch: int, user: str = "alice", member_id: str = "one", **what: Any) -> Any:
    request = m.ConsumerGroupHeartbeatRequest(group_id="matched", member_id=member_id, member_epoch=epoch, **what)
    response = broker.ask_as(user, ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    assert response.error_code == 0, response
    return response


def assigned(broker: Secured, epoch: int, owned: list[Any], user: str = "alice", member_id: str = "one") -> Any:
    """Heartbeats of a member until it has an assignment that is new to it: its epoch, and the ids of its topics."""
    waited_ms = 0
    while waited_ms < RESOLVED_AT_LATEST_MS:
        response = beat(broker, epoch, user, member_id, topic_partitions=owned, rebalance_timeout_ms=60_000)
        epoch = response.member_epoch
        if response.assignment is not None:
            found = {topic.topic_id for topic in response.assignment.topic_partitions}
            if found != {topic.topic_id for topic in owned}:
                return epoch, response.assignment.topic_partitions
        broker.node.advance(1_000)
        waited_ms += 1_000
    return epoch, owned


def ids(topics: Any) -> set[UUID]:
    return {UUID(int=topic.topic_id.int) for topic in topics}


def owned_of(topics: Any) -> list[m.ConsumerGroupHeartbeatRequestTopicPartitions]:
    owned = m.ConsumerGroupHeartbeatRequestTopicPartitions
    return [owned(topic_id=topic.topic_id, partitions=list(topic.partitions)) for topic in topics]


def test_a_regular_expression_finds_what_its_member_may_describe_when_it_is_resolved(broker: Secured) -> None:
    """A change of permissions alone resolves nothing anew before the refresh interval has passed."""
    seen, hidden = broker.create("m-seen"), broker.create("m-hidden")
    broker.authorizer.allow("DESCRIBE", "TOPIC", "m-", pattern="PREFIXED")
    broker.authorizer.deny("DESCRIBE", "TOPIC", "m-hidden")
    joined = beat(broker, 0, rebalance_timeout_ms=60_000, subscribed_topic_regex="m-.*", topic_partitions=[])
    epoch, topics = assigned(broker, joined.member_epoch, [])
    assert ids(topics) == {seen}
    broker.authorizer.rules.pop()
    epoch, topics = assigned(broker, epoch, owned_of(topics))
    assert ids(topics) == {seen}
    for _ in range(REFRESH_MS // RESOLVED_AT_LATEST_MS + 1):
        epoch, topics = assigned(broker, epoch, owned_of(topics))
    assert ids(topics) == {seen, hidden}
    refusals = [name for _, _, _, name, logs in broker.authorizer.asked if logs and name == "m-hidden"]
    assert not refusals, "topics that an expression does not find are no refusals"


def test_many_topics_of_a_regular_expression_are_decided_in_several_operations(broker: Secured) -> None:
    names = [f"m-{number:04}" for number in range(1_201)]
    made = {name: broker.create(name) for name in names}
    for name in names[::2]:
        broker.authorizer.allow("DESCRIBE", "TOPIC", name)
    joined = beat(broker, 0, rebalance_timeout_ms=60_000, subscribed_topic_regex="m-.*", topic_partitions=[])
    _, found = assigned(broker, joined.member_epoch, [])
    assert ids(found) == {made[name] for name in names[::2]}


# Transactions


def test_a_transaction_cannot_be_ended_after_its_permission_was_revoked(broker: Secured) -> None:
    authorizer = broker.authorizer
    authorizer.allow("WRITE", "TRANSACTIONAL_ID", "x")
    authorizer.allow("WRITE", "TOPIC", "t")
    find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
    while broker.ask_as("admin", ApiKey.FIND_COORDINATOR, find).coordinators[0].error_code:
        broker.node.advance(100)
    begun = broker.ask_as(
        "alice", ApiKey.INIT_PRODUCER_ID, m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    )
    ids_of = {"producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    records = batch(b"x", base_sequence=0, transactional=True, **ids_of)
    data = m.ProduceRequestTopicProduceData(
        name="t", partition_data=[m.ProduceRequestPartitionProduceData(index=0, records=records)]
    )
    produce = m.ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1_000, topic_data=[data])
    (topic,) = broker.ask_as("alice", ApiKey.PRODUCE, produce, 12).responses
    assert topic.partition_responses[0].error_code == 0
    authorizer.deny("WRITE", "TRANSACTIONAL_ID", "x")
    end = m.EndTxnRequest(transactional_id="x", committed=True, **ids_of)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert broker.ask_as("alice", ApiKey.END_TXN, end).error_code == refused
    (topic,) = broker.ask_as("alice", ApiKey.PRODUCE, produce, 12).responses
    assert topic.partition_responses[0].error_code == refused
    authorizer.rules.pop()
    assert broker.ask_as("alice", ApiKey.END_TXN, end).error_code == 0
