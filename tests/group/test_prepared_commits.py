"""A commit that comes again is answered, checked and logged as if it had never been seen."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.group.configs import GroupConfig
from kohort.group.offsets.commit import record
from kohort.group.offsets.prepared_commits import PreparedCommit, PreparedRecords, with_offsets
from kohort.group.records import GroupRecordSerde
from kohort.model.errors import ErrorCode
from kohort.records.values import OffsetCommit
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import encode_batch
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import response_reader
from kohort.wire.templates import Memory, PreparedResponse, RepeatReader, TemplateCache, TemplateMatch
from tests.group.harness import Answer, Coordinator, Topic

VERSIONS = range(2, 11)


def commit(
    offsets: dict[tuple[str, int], int],
    coordinator: Coordinator,
    *,
    group: str = "group",
    member: str = "",
    generation: int = -1,
    metadata: str | None = "",
    retention_ms: int = -1,
) -> m.OffsetCommitRequest:
    topics: dict[str, list[m.OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        entry = m.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(entry)
    return m.OffsetCommitRequest(
        group_id=group,
        member_id=member,
        generation_id_or_member_epoch=generation,
        retention_time_ms=retention_ms,
        topics=[
            m.OffsetCommitRequestTopic(
                name=name, topic_id=getattr(coordinator.image.topic(name), "topic_id", None), partitions=entries
            )
            for name, entries in topics.items()
        ],
    )


class Client:
    """A connection to a coordinator that remembers, or to one that does not."""

    def __init__(self, version: int, *, remembers: bool, config: GroupConfig | None = None) -> None:
        self.version = version
        self.coordinator = Coordinator(config)
        self.reader = RepeatReader(ApiKey.OFFSET_COMMIT, version, with_offsets)
        self.remembered = TemplateCache(Memory())
        self.remembers = remembers
        self.known = 0

    def send(self, request: m.OffsetCommitRequest) -> Answer:
        frame = request_encoder(ApiKey.OFFSET_COMMIT, self.version)(1, "client", request)[4:]
        remembered = self.remembered if self.remembers else TemplateCache(Memory())
        read = self.reader.read(frame, read_request_header(frame)[4], remembered)
        self.known += isinstance(read, TemplateMatch)
        return self.coordinator.ask("offset_commit", read, version=self.version)

    def read(self, answer: Answer) -> Any:
        """The response as the client reads it: some were encoded already."""
        response, correlation_id = answer.response, 77
        if isinstance(response, PreparedResponse):
            frame = response.frame(correlation_id)
        else:
            frame = response_encoder(ApiKey.OFFSET_COMMIT, self.version)(correlation_id, response)
        answered, body = read_response_header(frame[4:], ApiKey.OFFSET_COMMIT, self.version)
        assert (answered, int.from_bytes(frame[:4], "big")) == (correlation_id, len(frame) - 4)
        return response_reader(ApiKey.OFFSET_COMMIT, self.version)(frame[4:], body)

    def log(self) -> list[bytes]:
        return [bytes(batch) for batch in self.coordinator.log.batches]


def pair(version: int, config: GroupConfig | None = None) -> tuple[Client, Client]:
    return Client(version, remembers=True, config=config), Client(version, remembers=False, config=config)


def codes(client: Client, answer: Answer) -> list[int]:
    return [entry.error_code for topic in client.read(answer).topics for entry in topic.partitions]


PLACES = st.lists(
    st.tuples(st.sampled_from(["orders", "payments", "nowhere"]), st.integers(0, 4)), max_size=5, unique=True
)


@settings(max_examples=60)
@given(
    version=st.sampled_from(VERSIONS),
    kinds=st.lists(
        st.tuples(
            PLACES, st.sampled_from([("", -1), ("stranger", 3)]), st.sampled_from(["", "x", "y" * 5000]), st.booleans()
        ),
        min_size=1,
        max_size=3,
    ),
    data=st.data(),
)
def test_it_is_answered_and_logged_like_any_other(
    version: int, kinds: list[tuple[list[tuple[str, int]], tuple[str, int], str, bool]], data: st.DataObject
) -> None:
    """Existing and unknown partitions, members and strangers, long metadata, several in one batch, topics that come and go."""
    clients = pair(version)
    for _ in range(data.draw(st.integers(1, 12))):
        places, (member, generation), metadata, keeps = data.draw(st.sampled_from(kinds))
        offsets = data.draw(st.lists(st.integers(-1, 1 << 62), min_size=len(places), max_size=len(places)))
        happens = data.draw(st.sampled_from(["commit", "commit", "commit", "commit", "delete", "burst", "restart"]))
        answers = []
        for client in clients:
            coordinator = client.coordinator
            if happens == "delete":
                coordinator.image.by_name.pop("payments", None)
            elif happens == "restart":
                coordinator.restart()
            elif happens == "burst":
                coordinator.is_burst = not coordinator.is_burst
            request = commit(
                dict(zip(places, offsets, strict=True)),
                coordinator,
                member=member,
                generation=generation,
                metadata=metadata,
                retention_ms=1000 if keeps else -1,
            )
            answers.append((client, client.send(request)))
        if clients[0].coordinator.is_burst:
            continue
        assert answers[0][0].read(answers[0][1]) == answers[1][0].read(answers[1][1])
    for client in clients:
        client.coordinator.node.settle()
    assert clients[0].log() == clients[1].log()
    one, other = (dict(client.coordinator.shard.offsets.by_group.get("group") or {}) for client in clients)
    assert one == other


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 4])
def test_it_is_known(version: int, count: int) -> None:
    """So that the tests above test something."""
    client, other = pair(version)
    for number in range(5):
        for each in (client, other):
            offsets = {("orders", partition): number for partition in range(count)}
            assert codes(each, each.send(commit(offsets, each.coordinator))) == [0] * count
    assert (client.known, other.known) == (3, 0)
    assert client.log() == other.log()


def test_a_topic_that_was_deleted_is_refused_and_one_made_anew_is_found_again() -> None:
    client, _ = pair(9)
    places = {("orders", 0): 1, ("orders", 1): 1}
    for _ in range(4):
        assert codes(client, client.send(commit(places, client.coordinator))) == [0, 0]
    old = client.coordinator.image.by_name.pop("orders")
    assert codes(client, client.send(commit(places, client.coordinator))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    client.coordinator.image.by_name["orders"] = Topic("orders", old.topic_id, 1)
    assert codes(client, client.send(commit(places, client.coordinator))) == [3, 0]
    client.coordinator.image.by_name["orders"] = old
    assert codes(client, client.send(commit(places, client.coordinator))) == [0, 0]
    assert client.known == 5


def test_a_member_that_was_replaced_is_fenced() -> None:
    client, _ = pair(9)
    coordinator = client.coordinator
    (member,) = coordinator.stable(1)
    generation = coordinator.describe_generation()
    request = commit({("orders", 0): 5}, coordinator, member=member, generation=generation)
    for _ in range(3):
        assert codes(client, client.send(request)) == [0]
    coordinator.leave((member, None))
    assert codes(client, client.send(request)) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert client.known == 2


def test_a_commit_keeps_its_member_alive() -> None:
    client, _ = pair(9)
    coordinator = client.coordinator
    (member,) = coordinator.stable(1, session_ms=10_000)
    generation = coordinator.describe_generation()
    for number in range(10):
        coordinator.advance(6_000)
        request = commit({("orders", 0): number}, coordinator, member=member, generation=generation)
        assert codes(client, client.send(request)) == [0]
    assert client.known == 8


def test_metadata_that_has_become_too_long_is_refused() -> None:
    config = GroupConfig()
    client, _ = pair(9, config)
    request = commit({("orders", 0): 5}, client.coordinator, metadata="twenty characters   ")
    for _ in range(3):
        assert codes(client, client.send(request)) == [0]
    client.coordinator.restart(GroupConfig(offset_metadata_max_bytes=10))
    assert codes(client, client.send(request)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


@settings(max_examples=60)
@given(
    first=st.integers(0, 40) | st.sampled_from([62, 63, 64, 65, 8190, 8191, 8192]),
    commits=st.lists(
        st.tuples(st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from(["", "m" * 200]), st.booleans()),
        min_size=1,
        max_size=70,
    ),
)
def test_its_records_are_packed_as_a_builder_of_batches_writes_them(
    first: int, commits: list[tuple[int, str, bool]]
) -> None:
    coordinator = Coordinator()
    records = [
        OffsetCommit("group", "orders", index, offset, 3, metadata, 77, -1, topic_id)
        for index, (offset, metadata, has_id) in enumerate(commits)
        for topic_id in [coordinator.image.by_name["orders"].topic_id if has_id else None]
    ]
    request = commit({}, coordinator)
    plan = PreparedCommit(request, records, m.OffsetCommitResponse(), PreparedResponse(b"\0" * 12), 0)
    run = PreparedRecords(plan, tuple(offset for offset, *_ in commits), 99)
    serde = GroupRecordSerde()
    pairs = [serde.encode(record) for record in run]
    assert [(record.offset, record.commit_timestamp_ms) for record in run] == [(offset, 99) for offset, *_ in commits]
    assert run.pairs() == pairs
    before: list[tuple[bytes, bytes | None]] = [(b"k", None)] * first
    whole = encode_batch(before + pairs, 99)
    skipped = len(encode_batch(before, 99)) if first else HEADER_BYTES
    assert whole[skipped:] == run.pack(first)
    assert len(run.pack(first)) <= run.size_bytes


def test_missing_metadata_is_logged_as_empty() -> None:
    entry = m.OffsetCommitRequestPartition(partition_index=3, committed_offset=5, committed_metadata=None)
    found = record("group", 12, -1, ("orders", None, entry))
    assert (found.topic, found.partition, found.offset, found.metadata) == ("orders", 3, 5, "")
