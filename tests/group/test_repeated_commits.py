"""
A server that remembers commits beside one that reads each anew: both are sent the same bytes, and whatever the bytes and
whatever happens to group and topics in between, both answer the same, write the same log and know the same positions.
"""

import gc
import tracemalloc
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.group.configs import GroupConfig
from kohort.group.offsets.prepared_commits import Preparation, RepeatedCommits, with_offsets
from kohort.model.errors import WireError
from kohort.records.values import OffsetCommit
from kohort.testing import FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from kohort.wire.templates import (
    BODY_BYTES_MAX,
    Memory,
    RepeatReader,
    RequestTemplate,
    TemplateCache,
    TemplateMatch,
    prepared_or,
    route_repeats,
)
from tests.conftest import LONG
from tests.group.harness import Coordinator, Topic, classic_groups

COMMIT = ApiKey.OFFSET_COMMIT
VERSIONS = range(2, 11)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 300)
TOPIC_IDS = {"orders": UUID(int=1), "payments": UUID(int=2), "nowhere": UUID(int=99)}
Entries = Sequence[tuple[str, Sequence[int]]]


class Server:
    """One coordinator and one connection to it."""

    def __init__(self, version: int, *, remembers: bool, config: GroupConfig, batch_bytes_max: int = 1_048_588) -> None:
        self.version = version
        self.coordinator = Coordinator(config, batch_bytes_max=batch_bytes_max)
        self.reader = RepeatReader(COMMIT, version, with_offsets)
        self.read = request_reader(COMMIT, version)
        self.encode = prepared_or(response_encoder(COMMIT, version))
        self.remembers = remembers
        self.remembered = TemplateCache(Memory())
        self.known = 0
        self.answers: list[bytes] = []

    def receive(self, frame: bytes) -> None:
        try:
            body = read_request_header(frame)[4]
            request = self.reader.read(frame, body, self.remembered) if self.remembers else self.read(frame, body)
        except WireError:
            self.answers.append(b"closed")
            return
        self.known += isinstance(request, TemplateMatch)
        answer = self.coordinator.ask("offset_commit", request, version=self.version)
        if not self.coordinator.is_burst:
            self.answers.append(self.encode(7, answer.response))

    def happens(self, happening: Callable[[Coordinator], object]) -> None:
        """Something else than commits; it ends what went on."""
        self.coordinator.is_burst, self.coordinator.service.is_active = False, True
        self.coordinator.node.settle()
        happening(self.coordinator)

    def state(self) -> object:
        shard = self.coordinator.shard
        offsets = shard.offsets
        return (
            {group: dict(table) for group, table in offsets.by_group.items()},
            {producer: dict(table) for producer, table in offsets.pending.items()},
            {
                group.group_id: (group.state, group.generation, set(group.members))
                for group in classic_groups(shard).values()
            },
            shard.context.counters.offset_commits,
        )


def commit(
    entries: Entries, *, member: str = "", generation: int = -1, metadata: str | None = "", group: str = "group"
) -> m.OffsetCommitRequest:
    """A commit as it is written: a topic may come twice in it, and a partition."""
    return m.OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        topics=[
            m.OffsetCommitRequestTopic(
                name=name,
                topic_id=TOPIC_IDS.get(name),
                partitions=[
                    m.OffsetCommitRequestPartition(partition_index=partition, committed_metadata=metadata)
                    for partition in partitions
                ],
            )
            for name, partitions in entries
        ],
    )


def frame_of(request: m.OffsetCommitRequest, version: int, offsets: Sequence[int], client_id: str = "client") -> bytes:
    places = sum(len(topic.partitions) for topic in request.topics)
    moved = with_offsets(request, iter([offsets[index % len(offsets)] for index in range(places)]))
    return request_encoder(COMMIT, version)(1, client_id, moved)[4:]


def delete_topic(coordinator: Coordinator) -> None:
    coordinator.image.by_name.pop("payments", None)
    coordinator.delete_topics("payments")
    coordinator.node.settle()


def make_topic(coordinator: Coordinator) -> None:
    coordinator.image.by_name["payments"] = Topic("payments", TOPIC_IDS["payments"], 2)


def make_another_topic(coordinator: Coordinator) -> None:
    coordinator.image.by_name["payments"] = Topic("payments", UUID(int=3), 4)


def limit_metadata(coordinator: Coordinator) -> None:
    coordinator.restart(GroupConfig(offset_metadata_max_bytes=2))


def open_transaction(coordinator: Coordinator) -> None:
    record = OffsetCommit("group", "orders", 0, 99, -1, "", 0)
    coordinator.shard.replay(coordinator.end, 5, 0, record)


def end_transaction(coordinator: Coordinator) -> None:
    coordinator.shard.replay_end_transaction_marker(5, 0, committed=True)


def join(coordinator: Coordinator) -> None:
    """A member, whose id and generation are those of `MEMBER`; the second time there is a generation more."""
    if not coordinator.groups.get("group"):
        coordinator.stable(1)


def leave(coordinator: Coordinator) -> None:
    group = coordinator.groups.get("group")
    for member in list(group.members) if group is not None else ():
        coordinator.leave((member, None))


def begin_burst(coordinator: Coordinator) -> None:
    """What follows arrives in one turn."""
    coordinator.is_burst = True


def deactivate(coordinator: Coordinator) -> None:
    coordinator.service.is_active = False


HAPPENINGS: list[Callable[[Coordinator], object]] = [
    delete_topic,
    make_topic,
    make_another_topic,
    limit_metadata,
    Coordinator.restart,
    open_transaction,
    end_transaction,
    join,
    leave,
    begin_burst,
    deactivate,
    lambda coordinator: coordinator.delete("group"),
    lambda coordinator: coordinator.advance(7_000),
]
MEMBER = "client-uuid1"

PARTITIONS = st.lists(st.integers(0, 3), max_size=6) | st.lists(st.integers(-1, 4), max_size=2)
ENTRIES = st.lists(st.tuples(st.sampled_from(["orders"] * 4 + ["payments"] * 2 + ["nowhere"]), PARTITIONS), max_size=3)
KINDS = st.builds(
    commit,
    ENTRIES,
    member=st.sampled_from(["", "", MEMBER, "stranger"]),
    generation=st.sampled_from([-1, -1, 1, 2]),
    metadata=st.sampled_from([None, "", "met\u00e9"]),
)


@st.composite
def mutated(draw: st.DrawFn, frame: bytes) -> bytes:
    """Mostly the frame itself; else with a byte changed, put in or taken out, or cut off, or with more behind it."""
    place = draw(st.integers(0, len(frame) - 1))
    byte = bytes([draw(st.integers(0, 255))])
    return draw(
        st.sampled_from(
            [frame] * 6
            + [
                frame[:place] + byte + frame[place + 1 :],
                frame[:place] + byte + frame[place:],
                frame[:place] + frame[place + 1 :],
                frame[:place],
                frame + byte,
            ]
        )
    )


@settings(max_examples=2_000 if LONG else 100)
@given(
    version=st.sampled_from(VERSIONS),
    batch_bytes_max=st.integers(300, 900) | st.just(1_048_588),
    kinds=st.lists(KINDS, min_size=1, max_size=2),
    data=st.data(),
)
def test_whoever_remembers_does_the_same(
    version: int, batch_bytes_max: int, kinds: list[m.OffsetCommitRequest], data: st.DataObject
) -> None:
    config = GroupConfig()
    servers = [
        Server(version, remembers=remembers, config=config, batch_bytes_max=batch_bytes_max)
        for remembers in (True, False)
    ]
    for _ in range(data.draw(st.integers(1, 8))):
        happens = data.draw(st.sampled_from([None] * len(HAPPENINGS) + HAPPENINGS))
        kind = data.draw(st.sampled_from(kinds))
        times = data.draw(st.sampled_from([1, 3, 4, 5]))
        frames = [
            frame_of(
                kind, version, data.draw(st.lists(INT64, min_size=1, max_size=3)), data.draw(st.sampled_from("ab"))
            )
            for _ in range(times)
        ]
        frames[-1] = data.draw(mutated(frames[-1]))
        for server in servers:
            if happens is not None:
                server.happens(happens)
            for frame in frames:
                server.receive(frame)
        assert servers[0].answers == servers[1].answers
    for server in servers:
        server.coordinator.node.settle()
    one, other = servers
    assert [bytes(batch) for batch in one.coordinator.log.batches] == [
        bytes(batch) for batch in other.coordinator.log.batches
    ]
    assert one.state() == other.state()


def test_a_topic_given_twice_is_answered_once_also_when_the_group_refuses() -> None:
    server = Server(9, remembers=True, config=GroupConfig())
    request = commit([("orders", [0]), ("orders", [1])], member="stranger", generation=3)
    for number in range(4):
        server.receive(frame_of(request, 9, [number]))
    assert server.known == 2
    assert len(set(server.answers)) == 1


@pytest.mark.parametrize(
    ("group", "topic", "partitions"),
    [
        ("g", "t", 1),
        ("g", "t", 10),
        ("g" * 36, "t" * 20, 100),
        ("g", "t", 400),
        ("g" * 4000, "t" * 4, 200),
        ("g", "t" * 249, 200),
    ],
    ids=lambda value: str(value)[:5],
)
def test_what_is_kept_of_a_commit_is_not_more_than_was_counted(group: str, topic: str, partitions: int) -> None:
    """With all layouts that it may have: long names come once in a request, and in each of its records."""
    coordinator = Coordinator()
    coordinator.image.by_name[topic] = Topic(topic, UUID(int=1), 10_000)
    handler = coordinator.service.handlers()[ApiKey.OFFSET_COMMIT]
    assert isinstance(handler, RepeatedCommits)
    context = FixedContext(9, "client", "/127.0.0.1")
    groups = [f"{number:03}{group}" for number in range(8)]
    memory = Memory()
    remembered, reader = TemplateCache(memory), RepeatReader(COMMIT, 9, with_offsets)

    def keep() -> None:
        for name in groups:
            frames = [frame_of(commit([(topic, range(partitions))], group=name), 9, [number]) for number in range(3)]
            *_, found = [reader.read(frame, read_request_header(frame)[4], remembered) for frame in frames]
            assert isinstance(found, TemplateMatch)
            plan = handler.prepared(found, context)
            if plan is not None:
                for delta in range(8):
                    plan.layout(delta)

    for _ in range(2):
        keep()  # what is made once for all is not counted: a reader makes some of it for its 17th message
        remembered.forget()
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        keep()
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    patterns = [found for found in remembered.requests.values() if isinstance(found, RequestTemplate)]
    assert len(patterns) == 8
    assert all(isinstance(pattern.memo, Preparation) for pattern in patterns)
    assert held < Memory().bytes_left - memory.bytes_left
    assert patterns[0].body_bytes <= BODY_BYTES_MAX


def test_the_service_hands_a_handler_of_matches_to_the_server() -> None:
    handlers = Coordinator().service.handlers()
    encode = response_encoder(COMMIT, 9)
    read, encode_any = route_repeats(COMMIT, 9, handlers[ApiKey.OFFSET_COMMIT], encode)
    assert read is not None
    assert encode_any is not encode
    join = int(ApiKey.JOIN_GROUP)
    encode = response_encoder(join, 4)
    assert route_repeats(join, 4, handlers[ApiKey.JOIN_GROUP], encode) == (None, encode)
