"""Repeated requests: a request that matches a template is read as it was sent."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.group.offsets.prepared_commits import with_offsets
from kohort.model.errors import WireError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from kohort.wire.templates import (
    BODY_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAMES_MAX,
    Memory,
    RepeatReader,
    RequestTemplate,
    TemplateCache,
    TemplateMatch,
)
from tests.conftest import watches_calls

COMMIT = ApiKey.OFFSET_COMMIT
VERSIONS = range(2, 11)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 300)


def commit(
    offsets: list[int],
    *,
    group: str = "group",
    member: str = "member",
    generation: int = 3,
    metadata: str | None = "",
    topic: str = "orders",
    leader_epoch: int = -1,
    topic_id: UUID | None = None,
) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[
            m.OffsetCommitRequestTopic(
                name=topic,
                topic_id=topic_id,
                partitions=[
                    m.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset in enumerate(offsets)
                ],
            )
        ],
    )


class Client:
    """One connection, as it is read."""

    def __init__(self, version: int = 9, memory: Memory | None = None) -> None:
        self.version = version
        self.reader = RepeatReader(COMMIT, version, with_offsets)
        self.remembered = TemplateCache(memory or Memory())
        self.sent = 0

    def frame(self, request: m.OffsetCommitRequest) -> tuple[bytes, int]:
        self.sent += 1
        frame = request_encoder(COMMIT, self.version)(self.sent, "client", request)[4:]
        return frame, read_request_header(frame)[4]

    def send(self, request: m.OffsetCommitRequest) -> object:
        return self.reader.read(*self.frame(request), self.remembered)

    def is_known(self, request: m.OffsetCommitRequest) -> bool:
        return isinstance(self.send(request), TemplateMatch)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("count", [1, 2, 100])
def test_the_third_of_its_kind_is_known_by_its_offsets(version: int, count: int) -> None:
    client = Client(version)
    topic_id = UUID(int=7) if version >= 10 else None
    sent = [commit([number * 1000 + index for index in range(count)], topic_id=topic_id) for number in range(5)]
    assert [client.is_known(request) for request in sent] == [False, False, True, True, True]
    again = client.send(sent[3])
    assert isinstance(again, TemplateMatch)
    assert list(again.numbers) == [3000 + index for index in range(count)]
    frame, body = client.frame(sent[3])
    assert request_reader(COMMIT, version)(frame, body) == request_reader(COMMIT, version)(
        *client.frame(again.unfold())  # what a version lacks is not sent, and not compared
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"generation": 4},
        {"member": "nember"},
        {"metadata": "x"},
        {"metadata": None},
        {"topic": "otters"},
        {"leader_epoch": 5},
    ],
    ids=str,
)
def test_one_that_differs_elsewhere_is_read_anew(changed: dict[str, object]) -> None:
    client = Client()
    for number in range(3):
        client.send(commit([number, number]))
    other = commit([5, 6], **changed)  # type: ignore[arg-type]
    assert client.send(other) == other
    assert client.is_known(commit([5, 6], **changed)) is False  # type: ignore[arg-type]
    assert client.is_known(commit([5, 7], **changed)) is True  # type: ignore[arg-type]


def test_bytes_behind_the_end_make_it_another_request() -> None:
    """Kafka accepts bytes after a request; such a request gets no template."""
    client = Client()
    for number in range(4):
        frame, body = client.frame(commit([number]))
        assert client.reader.read(frame + b"more", body, client.remembered) == commit([number])


def test_an_unknown_tagged_field_is_dropped_every_time() -> None:
    client = Client()
    for number in range(4):
        frame, body = client.frame(commit([number]))
        tagged = frame[:-1] + b"\x01\x63\x02hi"
        assert client.reader.read(tagged, body, client.remembered) == commit([number])


def test_what_is_cut_off_is_refused_whatever_was_sent_before() -> None:
    client = Client()
    for number in range(3):
        client.send(commit([number]))
    frame, body = client.frame(commit([9]))
    for end in range(body, len(frame) - 1):
        with pytest.raises(WireError):
            client.reader.read(frame[:end], body, client.remembered)
    assert client.is_known(commit([10]))


def test_little_is_remembered() -> None:
    """A server remembers so many bytes. A connection that wants more forgets its own; when it is lost, that is free again."""
    memory = Memory(80_000)
    first, second = Client(memory=memory), Client(memory=memory)
    for number in range(10):
        first.send(commit([number], group=f"group-{number % 5}"))
    assert first.is_known(commit([5], group="group-1"))
    left = memory.bytes_left
    assert 0 < left < 80_000
    for number in range(1000):
        second.send(commit([number] * (number % 200), group=f"group-{number}"))
        assert 0 <= memory.bytes_left <= left
    assert first.is_known(commit([6], group="group-1"))
    second.remembered.forget()
    assert memory.bytes_left == left
    first.remembered.forget()
    assert memory.bytes_left == 80_000
    assert not first.remembered.requests


@settings(max_examples=100)
@given(sizes=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_what_is_remembered_is_counted(sizes: list[tuple[int, int]]) -> None:
    memory = Memory()
    client = Client(memory=memory)
    bodies: dict[int, int] = {}
    for group, count in sizes:
        request = commit([1] * count, group=f"group-{group}")
        client.send(request)
        frame, body = client.frame(request)
        bodies[group] = len(frame) - body
    remembered = list(client.remembered.requests.values())
    assert sorted(
        known.body_bytes if isinstance(known, RequestTemplate) else len(known.body) for known in remembered
    ) == sorted(bodies.values())
    assert Memory().bytes_left - memory.bytes_left == sum(known.held_bytes for known in remembered)


@settings(max_examples=100)
@given(sent=st.lists(st.tuples(st.integers(0, 9), st.sampled_from([0, 1, 1, 2, 400])), max_size=60))
def test_what_is_known_by_the_same_name_may_become_longer_but_not_than_the_memory(sent: list[tuple[int, int]]) -> None:
    """Short requests of many groups, then long ones of the same: that was counted, and not refused."""
    memory = Memory(12_000)
    client = Client(memory=memory)
    for group, count in sent:
        request = commit([7] * count, group=f"group-{group}")
        found = client.send(request)
        assert (found.unfold() if isinstance(found, TemplateMatch) else found) == request
        assert 0 <= memory.bytes_left <= 12_000
    client.remembered.forget()
    assert memory.bytes_left == 12_000


def test_long_requests_are_not_remembered() -> None:
    client = Client()
    long = commit([0] * (BODY_BYTES_MAX // 10))
    assert not any(client.is_known(long) for _ in range(4))
    assert not client.remembered.requests


@watches_calls
@pytest.mark.parametrize(("times", "attempts_max"), [(1, 11), (2, 20)])
def test_who_repeats_itself_never_or_once_is_compared_ever_less(
    times: int, attempts_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where each comes twice, each second one looks as if it came again; a pattern by which none is known is a miss, too."""
    client = Client()
    attempts = 0
    learn = client.reader._template

    def counted(request: object, body: bytes) -> RequestTemplate | None:
        nonlocal attempts
        attempts += 1
        return learn(request, body)

    monkeypatch.setattr(client.reader, "_template", counted)
    for number in range(1000):
        client.send(commit([number], generation=number // times))
    assert attempts <= attempts_max


def test_a_client_that_speaks_for_some_groups_is_known_for_each() -> None:
    client = Client()
    groups = [f"group-{number}" for number in range(64)]
    known = [client.is_known(commit([number], group=group)) for number in range(4) for group in groups]
    assert known == [False] * (2 * 64) + [True] * (2 * 64)


@st.composite
def requests(draw: st.DrawFn) -> m.OffsetCommitRequest:
    """Of few kinds, so that they repeat."""
    return commit(
        draw(st.lists(INT64, max_size=3)),
        group=draw(st.sampled_from(["", "g", "h" * 130])),
        member=draw(st.sampled_from(["", "m1", "m2"])),
        metadata=draw(st.sampled_from([None, "", "some \u00e9"])),
        leader_epoch=draw(st.sampled_from([-1, 0])),
    )


@settings(max_examples=200)
@given(version=st.sampled_from(VERSIONS), sent=st.lists(requests(), max_size=3), order=st.data())
def test_what_is_read_is_what_was_sent(version: int, sent: list[m.OffsetCommitRequest], order: st.DataObject) -> None:
    client = Client(version)
    if not sent:
        return
    for request in order.draw(st.lists(st.sampled_from(sent), max_size=12)):
        numbers = order.draw(st.lists(INT64, min_size=3, max_size=3))
        moved = with_offsets(request, _cycle(numbers))
        frame, body = client.frame(moved)
        found = client.reader.read(frame, body, client.remembered)
        whole = found.unfold() if isinstance(found, TemplateMatch) else found
        assert client.frame(whole)[0][body:] == frame[body:]


def _cycle(numbers: list[int]) -> Iterator[int]:
    while True:
        yield from numbers


def _as_it_is(request: object, _numbers: Iterator[int]) -> object:
    return request


def test_requests_of_two_apis_with_the_same_version_and_group_do_not_displace_each_other() -> None:
    remembered = TemplateCache(Memory())
    client = Client(3)
    client.remembered = remembered
    beats = RepeatReader(ApiKey.HEARTBEAT, 3, _as_it_is)
    beat = request_encoder(ApiKey.HEARTBEAT, 3)(1, "client", m.HeartbeatRequest(group_id="group", member_id="member"))
    known = []
    for number in range(4):
        read = beats.read(beat[4:], read_request_header(beat[4:])[4], remembered)
        known.append((isinstance(read, TemplateMatch), client.is_known(commit([number]))))
    assert known == [(False, False), (False, False), (True, True), (True, True)]


@pytest.mark.parametrize("version", [7, 9])
def test_fetches_of_several_groups_are_known_each(version: int) -> None:
    """From version 8 on the groups are in an array."""
    remembered = TemplateCache(Memory())
    reader = RepeatReader(ApiKey.OFFSET_FETCH, version, _as_it_is)

    def is_known(group: str) -> bool:
        groups = [m.OffsetFetchRequestGroup(group_id=group, topics=None)]
        request = m.OffsetFetchRequest(group_id=group, topics=None, groups=groups)
        frame = request_encoder(ApiKey.OFFSET_FETCH, version)(1, "client", request)[4:]
        return isinstance(reader.read(frame, read_request_header(frame)[4], remembered), TemplateMatch)

    assert [(is_known("one"), is_known("two")) for _ in range(4)] == [(False, False)] * 2 + [(True, True)] * 2


class Beats:
    """A connection that knows a heartbeat by its bytes."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.remembered = TemplateCache(memory or Memory())
        self.reader = RepeatReader(ApiKey.HEARTBEAT, 4, _as_it_is)
        for _ in range(3):
            self.send("client")

    @staticmethod
    def data(client_id: str = "client", *, correlation_id: int = 1, member: str = "member", version: int = 4) -> bytes:
        request = m.HeartbeatRequest(group_id="group", member_id=member)
        return request_encoder(ApiKey.HEARTBEAT, version)(correlation_id, client_id, request)

    def send(self, client_id: str, member: str = "member") -> None:
        frame = self.data(client_id, member=member)[4:]
        body = read_request_header(frame)[4]
        read = self.reader.read(frame, body, self.remembered)
        if isinstance(read, TemplateMatch):
            self.remembered.know(frame, body, "route", client_id, read)


def test_a_request_without_numbers_is_known_by_its_bytes_with_any_correlation_id() -> None:
    beats = Beats()
    for correlation_id in (0, 1, -1, 1 << 30):
        data = beats.data(correlation_id=correlation_id)
        known = beats.remembered.known(data)
        assert known is not None
        assert (known.route, known.client_id) == ("route", "client")
        match = known.match(data)
        assert match is not None
        assert match.template.request == m.HeartbeatRequest(group_id="group", member_id="member")


@pytest.mark.parametrize(
    "other",
    [
        Beats.data("another"),
        Beats.data(member="nember"),
        Beats.data(version=3),
        Beats.data()[:-1],
        Beats.data() + b"\0",
        b"\0\0\0\x01" + Beats.data()[4:],
        Beats.data()[:5] + b"\x0d" + Beats.data()[6:],
        b"",
        b"\0\0\0",
    ],
    ids=["client id", "member", "version", "end", "more", "size", "API", "nothing", "half a size"],
)
def test_other_bytes_are_not_known(other: bytes) -> None:
    assert Beats().remembered.known(other) is None


def test_what_is_known_by_its_bytes_goes_with_its_template() -> None:
    replaced, forgotten = Beats(), Beats()
    replaced.send("client", "another")
    forgotten.remembered.forget()
    assert [each.remembered.known(Beats.data()) for each in (replaced, forgotten)] == [None, None]


def test_a_long_request_is_not_known_by_its_bytes() -> None:
    beats, commits = Beats(), Commits()
    for number in range(4):
        beats.send("c" * FRAME_BYTES_MAX)
        commits.send(commit([number] * 100))
    assert beats.remembered.known(Beats.data("c" * FRAME_BYTES_MAX)) is None
    assert not commits.remembered.frames


class Commits:
    """A connection that knows short commits by their bytes."""

    def __init__(self, version: int = 9) -> None:
        self.version = version
        self.reader = RepeatReader(COMMIT, version, with_offsets)
        self.memory = Memory()
        self.remembered = TemplateCache(self.memory)

    def data(self, request: m.OffsetCommitRequest) -> bytes:
        return request_encoder(COMMIT, self.version)(1, "client", request)

    def send(self, request: m.OffsetCommitRequest) -> None:
        frame = self.data(request)[4:]
        body = read_request_header(frame)[4]
        read = self.reader.read(frame, body, self.remembered)
        if isinstance(read, TemplateMatch):
            self.remembered.know(frame, body, "route", "client", read)

    def numbers(self, request: m.OffsetCommitRequest, more: bytes = b"") -> list[int] | None:
        """The numbers of a request that is known by its bytes."""
        data = self.data(request) + more
        known = self.remembered.known(data)
        match = None if known is None else known.match(data)
        return None if match is None else list(match.numbers)


@settings(max_examples=30)
@given(
    version=st.sampled_from(VERSIONS), sent=st.lists(st.lists(INT64, min_size=3, max_size=3), min_size=4, max_size=6)
)
def test_a_commit_is_known_by_its_bytes_before_the_first_offset(version: int, sent: list[list[int]]) -> None:
    topic_id = UUID(int=7) if version >= 10 else None
    for count in (1, 2, 3):
        commits = Commits(version)
        for number in range(3):
            commits.send(commit([number] * count, topic_id=topic_id))
        for offsets in sent:
            assert commits.numbers(commit(offsets[:count], topic_id=topic_id)) == offsets[:count]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "changed", [{"metadata": "n"}, {"metadata": ""}, {"topic": "otters"}, {"member": "nember"}], ids=str
)
def test_a_commit_that_differs_elsewhere_is_not_known_by_its_bytes(changed: dict[str, str], count: int) -> None:
    commits = Commits()
    for number in range(3):
        commits.send(commit([number] * count, metadata="m"))
    assert commits.numbers(commit([9] * count, metadata="m")) == [9] * count
    assert commits.numbers(commit([9] * count, **{"metadata": "m"} | changed)) is None  # type: ignore[arg-type]
    assert commits.numbers(commit([9] * count, metadata="m"), b"\0") is None


def test_of_commits_of_one_size_those_are_known_whose_first_offset_is_at_one_place() -> None:
    """Another one is read as before: its offsets are right."""
    commits, other = Commits(), {"topic": "order", "metadata": "x"}
    assert len(commits.data(commit([1]))) == len(commits.data(commit([1], **other)))  # type: ignore[arg-type]
    for number in range(3):
        commits.send(commit([number], group="group-1"))
        commits.send(commit([number], group="group-2", **other))  # type: ignore[arg-type]
    assert commits.numbers(commit([5], group="group-1")) == [5]
    assert commits.numbers(commit([5], group="group-2", **other)) is None  # type: ignore[arg-type]


def test_what_is_known_already_takes_no_more_memory() -> None:
    """As behind another request, when it is not looked for by its bytes."""
    commits = Commits()
    for number in range(3):
        commits.send(commit([number]))
    left = commits.memory.bytes_left
    for number in range(3):
        commits.send(commit([number]))
    assert commits.memory.bytes_left == left


def test_what_is_known_by_its_bytes_counts_as_memory_and_gives_it_back() -> None:
    memory = Memory(100_000)
    beats = Beats(memory)
    before = memory.bytes_left
    for number in range(50):
        beats.send(f"client-{number}")
    assert memory.bytes_left < before - 50 * len(Beats.data())
    for number in range(50, 2_000):
        beats.send(f"client-{number}")
        assert memory.bytes_left >= 0
    assert len(beats.remembered.frames) < FRAMES_MAX
    beats.remembered.forget()
    assert memory.bytes_left == 100_000
