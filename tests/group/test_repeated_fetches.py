"""
A connection that repeats an OffsetFetch is answered as one that sends it for the first time, whatever happens to the group
and its offsets in between.
"""

import gc
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode
from kohort.server.requests.dispatch import Route
from kohort.testing import FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import response_reader
from kohort.wire.templates import Memory, PreparedResponse, RequestTemplate, TemplateCache, TemplateMatch
from tests.group.harness import Coordinator, Image, Topic

FETCH = ApiKey.OFFSET_FETCH
VERSIONS = range(1, 11)
REMEMBERING = range(1, 10)
"""Versions that name topics by their names."""
ALL_SINCE, STABLE_SINCE, GROUPS_SINCE, MEMBER_SINCE, IDS_SINCE = 2, 7, 8, 9, 10
PARTITIONS = [("orders", 0), ("orders", 1), ("payments", 0), ("payments", 3)]


class Connection:
    """A connection as the server has it. Each answer is compared with that to a connection that remembers nothing."""

    def __init__(self, coordinator: Coordinator, version: int, memory: Memory | None = None) -> None:
        self.coordinator = coordinator
        self.version = version
        self.cache = TemplateCache(memory or Memory())
        self.last: Any = None
        """The last response of the handler."""
        self.reads_template = False

    def send(self, request: m.OffsetFetchRequest, *, is_known: bool = True) -> Any:
        route = Route(FETCH, self.version, self.coordinator.service.handlers()[FETCH])
        frame = request_encoder(FETCH, self.version)(7, "client", request)[4:]
        body = read_request_header(frame)[4]
        context = FixedContext(self.version, "client", "/127.0.0.1")
        answers: list[Any] = []
        assert route.read_repeated is not None
        repeated = route.read_repeated(frame, body, self.cache) if is_known else route.read(frame, body)
        for read in (repeated, route.read(frame, body)):
            late: list[Any] = []
            response = route.handler(read, context, late.append)
            self.coordinator.node.settle()
            answers.append(late[0] if response is None else response)
        self.last = answers[0]
        self.reads_template = isinstance(repeated, TemplateMatch)
        encoded = [route.encode(9, answer) for answer in answers]
        assert encoded[0] == encoded[1]
        answer = encoded[0][4:]
        return response_reader(FETCH, self.version)(answer, read_response_header(answer, FETCH, self.version)[1])

    def positions(self, request: m.OffsetFetchRequest) -> list[tuple[int, int]]:
        """Offset and error code of each partition."""
        answer = self.send(request)
        (group,) = answer.groups if self.version >= GROUPS_SINCE else (answer,)
        return [(each.committed_offset, each.error_code) for topic in group.topics for each in topic.partitions]


def fetch_of(
    coordinator: Coordinator,
    version: int,
    *,
    is_all: bool = False,
    stable: bool = False,
    groups: tuple[str, ...] = ("group",),
    member: tuple[str | None, int] = (None, -1),
) -> m.OffsetFetchRequest:
    """A request for some partitions, or for all, in the form of the version."""
    by_topic: dict[str, list[int]] = {}
    for topic, index in PARTITIONS:
        by_topic.setdefault(topic, []).append(index)
    if version < GROUPS_SINCE:
        named = [m.OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in by_topic.items()]
        return m.OffsetFetchRequest(group_id=groups[0], topics=None if is_all else named, require_stable=stable)
    topics = [
        m.OffsetFetchRequestTopics(name=name, topic_id=coordinator.image.by_name[name].topic_id, partition_indexes=each)
        for name, each in by_topic.items()
    ]
    return m.OffsetFetchRequest(
        groups=[
            m.OffsetFetchRequestGroup(
                group_id=group, member_id=member[0], member_epoch=member[1], topics=None if is_all else topics
            )
            for group in groups
        ],
        require_stable=stable,
    )


def is_kept(connection: Connection) -> bool:
    """Whether the last answer is kept with its request."""
    (template,) = connection.cache.requests.values()
    assert isinstance(template, RequestTemplate)
    return template.memo is not None and template.memo._answer is connection.last


@pytest.mark.parametrize("version", REMEMBERING)
@pytest.mark.parametrize("is_all", [False, True])
def test_the_same_offsets_have_the_same_answer(version: int, is_all: bool) -> None:
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    connection = Connection(coordinator, version)
    request = fetch_of(coordinator, version, is_all=is_all and version >= ALL_SINCE)
    found = []
    for _ in range(5):
        assert connection.positions(request) == [(7, 0)] * 4
        found.append(connection.last)
    assert not isinstance(found[1], PreparedResponse)
    assert isinstance(found[2], PreparedResponse)
    assert found[2] is found[3] is found[4]


def test_an_offset_that_changes_or_goes_is_told() -> None:
    coordinator = Coordinator()
    connection = Connection(coordinator, 9)
    request = fetch_of(coordinator, 9)
    for _ in range(4):
        assert connection.positions(request) == [(-1, 0)] * 4
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    for _ in range(2):
        assert connection.positions(request) == [(7, 0)] * 4
    coordinator.commit({("payments", 3): 8})
    for _ in range(2):
        assert connection.positions(request) == [(7, 0), (7, 0), (7, 0), (8, 0)]
    coordinator.commit({("payments", 3): 8}, metadata="new")
    assert connection.send(request).groups[0].topics[1].partitions[1].metadata == "new"
    coordinator.delete("group")
    assert connection.positions(request) == [(-1, 0)] * 4


def test_an_offset_of_a_transaction() -> None:
    """KIP-447: a request for stable offsets is told that one may change; another one gets the committed offset."""
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    stable, plain = (Connection(coordinator, 9) for _ in range(2))
    requests = [(stable, fetch_of(coordinator, 9, stable=True)), (plain, fetch_of(coordinator, 9))]

    def told(*offsets: tuple[int, int]) -> None:
        for (connection, request), offset in zip(requests, offsets, strict=True):
            for _ in range(4):
                assert connection.positions(request) == [offset, (7, 0), (7, 0), (7, 0)]

    told((7, 0), (7, 0))
    for committed, after in ((False, 7), (True, 9)):
        coordinator.commit_in_transaction({("orders", 0): 9})
        told((-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (7, 0))
        assert coordinator.end_transaction(committed=committed) is None
        told((after, 0), (after, 0))


def test_an_offset_that_is_missing_is_not_taken_for_an_unstable_one() -> None:
    coordinator = Coordinator()
    connection = Connection(coordinator, 9)
    request = fetch_of(coordinator, 9, stable=True)
    for _ in range(3):
        assert connection.positions(request) == [(-1, 0)] * 4
    coordinator.commit_in_transaction({("orders", 0): 9})
    assert connection.positions(request)[0] == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)


def test_an_offset_that_is_not_in_the_log_yet() -> None:
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    connection = Connection(coordinator, 9)
    request = fetch_of(coordinator, 9)
    for _ in range(4):
        connection.positions(request)
    coordinator.log.is_held = True
    topic = m.OffsetCommitRequestTopic(
        name="orders", partitions=[m.OffsetCommitRequestPartition(partition_index=0, committed_offset=8)]
    )
    commit = m.OffsetCommitRequest(group_id="group", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
    committed = coordinator.ask("offset_commit", commit)
    assert connection.positions(request) == [(7, 0)] * 4
    assert committed.responses == []
    coordinator.log.commit()
    coordinator.node.settle()
    assert len(committed.responses) == 1
    assert connection.positions(request) == [(8, 0), (7, 0), (7, 0), (7, 0)]


def test_a_member_of_an_older_epoch_is_refused() -> None:
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))

    def beat(member: str, epoch: int, *topics: str) -> int:
        request = m.ConsumerGroupHeartbeatRequest(
            group_id="group",
            member_id=member,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
        answer = coordinator.ask("consumer_group_heartbeat", request)
        assert answer.code is ErrorCode.NONE
        return int(answer.member_epoch)

    epoch = beat("a", 0, "orders")
    connection = Connection(coordinator, 9)
    request = fetch_of(coordinator, 9, member=("a", epoch))
    for _ in range(4):
        assert connection.positions(request) == [(7, 0)] * 4
    assert is_kept(connection)
    beat("b", 0, "payments")
    assert beat("a", epoch, "orders") > epoch
    for _ in range(2):
        assert connection.send(request).groups[0].error_code == ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize("version", [GROUPS_SINCE, IDS_SINCE])
def test_topics_that_are_made_anew(version: int) -> None:
    """A request by names gets the offset as before, one by ids learns that there is no such topic any more."""
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    connection = Connection(coordinator, version)
    request = fetch_of(coordinator, version)
    for _ in range(4):
        assert connection.positions(request) == [(7, 0)] * 4
    image = coordinator.service.image = coordinator.image = Image()
    image.by_name = {name: Topic(name, UUID(int=number), 4) for number, name in enumerate(image.by_name, 11)}
    code = ErrorCode.UNKNOWN_TOPIC_ID
    assert connection.positions(request) == ([(-1, code)] * 4 if version == IDS_SINCE else [(7, 0)] * 4)


def test_several_groups_are_asked_each_time_and_all_of_one_once() -> None:
    """The rule for elements that are given twice holds for repeated requests, too."""
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    coordinator.commit(dict.fromkeys(PARTITIONS, 8), group="other")
    connection = Connection(coordinator, 9)
    for number in range(4):
        answer = connection.send(fetch_of(coordinator, 9, is_all=True, groups=("group", "other", "group")))
        assert [group.group_id for group in answer.groups] == ["group", "other"]
        assert connection.reads_template is (number > 1)
        assert not isinstance(connection.last, PreparedResponse)


@pytest.mark.parametrize("version", VERSIONS)
def test_no_coordinator_and_no_partition(version: int) -> None:
    coordinator = Coordinator()
    coordinator.commit(dict.fromkeys(PARTITIONS, 7))
    connection = Connection(coordinator, version)
    request = fetch_of(coordinator, version)
    for _ in range(4):
        connection.send(request)
    coordinator.service.is_active = False
    for _ in range(2):
        connection.send(request)
        assert str(ErrorCode.COORDINATOR_NOT_AVAILABLE.value) in repr(connection.last)
    coordinator.service.is_active = True
    assert connection.positions(request) == [(7, 0)] * 4
    coordinator.runtime.unload(0, None)
    for _ in range(2):
        connection.send(request)
    assert version < ALL_SINCE or connection.send(request) is not None


def _commit(coordinator: Coordinator, rng: Random) -> None:
    coordinator.commit({rng.choice(PARTITIONS): rng.randrange(3)}, metadata=rng.choice(["", "a"]))


def _commit_in_transaction(coordinator: Coordinator, rng: Random) -> None:
    coordinator.commit_in_transaction({rng.choice(PARTITIONS): rng.randrange(3)}, producer_id=rng.randrange(2))


def _end_transaction(coordinator: Coordinator, rng: Random) -> None:
    coordinator.end_transaction(committed=rng.random() < 0.5, producer_id=rng.randrange(2))


def _delete_offsets(coordinator: Coordinator, rng: Random) -> None:
    topic, index = rng.choice(PARTITIONS)
    partition = m.OffsetDeleteRequestPartition(partition_index=index)
    named = m.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
    coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id="group", topics=[named]))


def _delete_group(coordinator: Coordinator, _rng: Random) -> None:
    coordinator.delete("group")


def _delete_topic(coordinator: Coordinator, rng: Random) -> None:
    coordinator.delete_topics(rng.choice(["orders", "payments"]))
    coordinator.node.settle()


def _restart(coordinator: Coordinator, _rng: Random) -> None:
    coordinator.restart()


def _pass_time(coordinator: Coordinator, rng: Random) -> None:
    coordinator.advance(rng.choice([1_000, coordinator.config.offsets_retention_ms]))


HAPPENINGS: list[Callable[[Coordinator, Random], None]] = [
    *[_commit] * 4,
    *[_commit_in_transaction] * 3,
    *[_end_transaction] * 3,
    _delete_offsets,
    _delete_group,
    _delete_topic,
    _restart,
    _pass_time,
]


def test_whatever_happens_the_answer_is_that_of_a_first_request(rng: Random) -> None:
    coordinator = Coordinator()
    asking = []
    for _ in range(4):
        version = rng.choice(VERSIONS)
        is_all = version >= ALL_SINCE and rng.random() < 0.5
        is_stable = version >= STABLE_SINCE and rng.random() < 0.5
        request = fetch_of(coordinator, version, is_all=is_all, stable=is_stable)
        asking.append((Connection(coordinator, version), request))
    for _ in range(60):
        rng.choice(HAPPENINGS)(coordinator, rng)
        for _ in range(rng.choice([1, 1, 2, 3])):
            for connection, request in asking:
                connection.send(request)


@pytest.mark.parametrize(
    ("partitions", "metadata", "is_all", "is_small"),
    [
        (1, "", False, True),
        (100, "", False, True),
        (200, "a member of it", False, True),
        (1, "x" * 4_000, False, False),
        (100, "x" * 400, False, False),
        (40, "\N{LEMON}" + "x" * 20, False, True),  # four bytes a letter
        (8, "", True, True),
        (14, "", True, False),
        (100, "", True, False),
    ],
)
def test_what_is_kept_is_not_more_than_was_counted(
    partitions: int, metadata: str, is_all: bool, is_small: bool
) -> None:
    """Also if the offsets are held by nobody else any more."""
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=4_096))
    topic = Topic("t", UUID(int=9), 1_000)
    coordinator.image.by_name["t"] = topic
    topics = [m.OffsetFetchRequestTopics(name="t", partition_indexes=[index + 300 for index in range(partitions)])]
    request = m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequestGroup(group_id="group", topics=None if is_all else topics)]
    )
    connection = Connection(coordinator, 9, Memory())
    tracemalloc.start()
    try:
        coordinator.commit({("t", index + 300): 1 << 60 for index in range(partitions)}, metadata=metadata)
        for _ in range(3):
            connection.send(request)
        assert is_kept(connection) is is_small
        coordinator.delete("group")
        connection.last = None
        (template,) = connection.cache.requests.values()
        counted = template.held_bytes
        del template
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        connection.cache.forget()
        gc.collect()
        held = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0 < held < counted
