"""What a consumer is told, and when. Rows are those of Kafka's ReplicaManager and DelayedFetch, probed on 4.2.1."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import iter_batches, read_records
from tests.broker.calls import calls
from tests.broker.harness import Harness, batch
from tests.broker.records.in_steps import in_steps  # noqa: F401 -- a fixture
from tests.conftest import watches_calls

SIZE = len(batch(b"x"))


def asked(
    offset: int = 0, *, partition: int = 0, bytes_max: int = 1 << 20, **what: Any
) -> m.FetchRequestFetchPartition:
    return m.FetchRequestFetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=bytes_max, **what)


def fetch_request(
    *partitions: m.FetchRequestFetchPartition, topic: str = "t", topic_id: UUID | None = None, **what: Any
) -> m.FetchRequest:
    topics = [m.FetchRequestFetchTopic(topic=topic, topic_id=topic_id, partitions=partitions or (asked(),))]
    fields: dict[str, Any] = {"topics": topics, "max_bytes": 1 << 20, "min_bytes": 1}
    return m.FetchRequest(**fields | what)


def fetch(
    harness: Harness, *partitions: m.FetchRequestFetchPartition, version: int = 12, **what: Any
) -> Sequence[m.FetchResponsePartitionData]:
    response = harness.ask(ApiKey.FETCH, fetch_request(*partitions, **what), version=version)
    assert (response.error_code, response.session_id) == (0, 0)
    found: Sequence[m.FetchResponsePartitionData] = response.responses[0].partitions
    return found


def values(data: m.FetchResponsePartitionData) -> list[bytes | None]:
    records = bytes(data.records or b"")
    return [r.value for at, header in iter_batches(records) for r in read_records(records[at:], header=header)]


def filled(*sent: bytes, partitions: int = 1) -> Harness:
    """A topic `t`, a batch per value in each of its partitions."""
    harness = Harness()
    harness.create("t", partitions)
    for partition in range(partitions):
        for value in sent:
            harness.write("t", value, partition=partition)
    return harness


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name(version: int) -> None:
    (data,) = fetch(filled(b"a", b"b"), version=version)
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 2, 2)
    assert values(data) == [b"a", b"b"]
    assert data.log_start_offset == (0 if version >= 5 else -1)
    assert data.aborted_transactions is None


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id(version: int) -> None:
    harness = filled(b"a")
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    for topic_id, code in ((topic.topic_id, ErrorCode.NONE), (UUID(int=9), ErrorCode.UNKNOWN_TOPIC_ID)):
        (data,) = fetch(harness, version=version, topic="", topic_id=topic_id)
        assert data.error_code == code


# fmt: off
OFFSETS = {  # of a log that holds offsets 0 and 1
    -1: ErrorCode.OFFSET_OUT_OF_RANGE,
    0:  ErrorCode.NONE,
    1:  ErrorCode.NONE,
    2:  ErrorCode.NONE,
    3:  ErrorCode.OFFSET_OUT_OF_RANGE,
}
# fmt: on


@pytest.mark.parametrize("offset", OFFSETS)
def test_offsets(offset: int) -> None:
    (data,) = fetch(filled(b"a", b"b"), asked(offset))
    assert data.error_code == OFFSETS[offset]
    assert values(data) == ([] if data.error_code else [b"a", b"b"][offset:])
    assert data.high_watermark == (-1 if data.error_code else 2)
    assert data.records == b"" or not data.error_code


def test_what_is_not_below_the_high_watermark_is_not_seen() -> None:
    harness = filled(b"a")
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.append(batch(b"b"))
    (data,) = harness.begin(ApiKey.FETCH, fetch_request(asked(1)), version=12)[0].responses[0].partitions
    assert (data.error_code, values(data), data.high_watermark) == (0, [], 1)


# fmt: off
LIMITS = {  # bytes of the request, of each partition: batches of three partitions with three batches each
    (9 * SIZE, 3 * SIZE):      (3, 3, 3),
    (9 * SIZE, 2 * SIZE):      (2, 2, 2),
    (4 * SIZE, 3 * SIZE):      (3, 1, 0),
    (4 * SIZE - 1, 3 * SIZE):  (3, 0, 0),   # the first batch of the second does not fit: none of it
    (3 * SIZE - 1, 3 * SIZE):  (2, 0, 0),
    (1, 3 * SIZE):             (1, 0, 0),   # the first partition with data gives one batch, however large
    (0, 3 * SIZE):             (1, 0, 0),
    (9 * SIZE, 0):             (1, 0, 0),
    (9 * SIZE, 1):             (1, 0, 0),
}
# fmt: on


@pytest.mark.parametrize("limits", LIMITS)
def test_limits_of_bytes(limits: tuple[int, int]) -> None:
    request_bytes, partition_bytes = limits
    harness = filled(b"a", b"b", b"c", partitions=3)
    partitions = [asked(partition=index, bytes_max=partition_bytes) for index in range(3)]
    found = fetch(harness, *partitions, max_bytes=request_bytes)
    assert tuple(len(values(data)) for data in found) == LIMITS[limits]
    assert [data.high_watermark for data in found] == [3, 3, 3], "told even where no bytes were left"


def test_first_partition_with_data_is_the_one_that_may_be_too_large() -> None:
    harness = filled(b"a", b"b", partitions=2)
    found = fetch(harness, asked(2, partition=0), asked(0, partition=1, bytes_max=1))
    assert [len(values(data)) for data in found] == [0, 1]


def test_brokers_own_limit() -> None:
    harness = Harness(fetch_max_bytes="1024")
    harness.create("t")
    for _ in range(3):
        harness.write("t", b"x" * 500)
    (data,) = fetch(harness)
    assert len(values(data)) == 1


def test_negative_partition_limit() -> None:
    (data,) = fetch(filled(b"a"), asked(bytes_max=-1))
    assert data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_partition_that_is_named_twice_counts_once() -> None:
    (data,) = fetch(filled(b"a", b"b"), asked(0), asked(1))
    assert values(data) == [b"b"]


@pytest.mark.parametrize(("isolation_level", "aborted"), [(0, None), (1, ())])
def test_isolation_level(isolation_level: int, aborted: object) -> None:
    (data,) = fetch(filled(b"a"), isolation_level=isolation_level)
    assert (data.error_code, data.aborted_transactions) == (0, aborted)


@pytest.mark.parametrize("isolation_level", [2, -1])
@pytest.mark.parametrize("session_epoch", [-1, 0])
@pytest.mark.parametrize("version", [4, 12, 13])
def test_an_unknown_isolation_level_fails_the_whole_request(
    isolation_level: int, session_epoch: int, version: int
) -> None:
    """No session begins. From version 13 on the partitions are left out, as in every failed Fetch."""
    request = fetch_request(isolation_level=isolation_level, session_epoch=session_epoch)
    response = filled(b"a").ask(ApiKey.FETCH, request, version=version)
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    assert response.session_id == 0
    assert response.error_code == (code if version >= 7 else 0), "version 4 has no error of the whole response"
    assert [
        (topic.topic, [(data.partition_index, data.error_code, data.aborted_transactions) for data in topic.partitions])
        for topic in response.responses
    ] == ([("t", [(0, code, ())])] if version < 13 else [])


@pytest.mark.parametrize("version", [14, 15])
def test_replicas_are_refused(version: int) -> None:
    harness = filled(b"a")
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    state = m.FetchRequestReplicaState(replica_id=2, replica_epoch=1)
    (data,) = fetch(harness, version=version, topic_id=topic.topic_id, replica_id=2, replica_state=state)
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# fmt: off
LEADER_EPOCHS = {  # known to the client, of a leader at epoch 3: code, and whether the leader is named
    -2: (ErrorCode.NONE, False),
    -1: (ErrorCode.NONE, False),
    2:  (ErrorCode.FENCED_LEADER_EPOCH, True),
    3:  (ErrorCode.NONE, False),
    4:  (ErrorCode.UNKNOWN_LEADER_EPOCH, False),
}
# fmt: on


@pytest.mark.parametrize("leader_epoch", LEADER_EPOCHS)
def test_leader_epochs(leader_epoch: int) -> None:
    harness = filled(b"a")
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.begin_epoch(3)
    log = partition.log
    request = fetch_request(asked(current_leader_epoch=leader_epoch), topic_id=log.topic_id)
    response = harness.ask(ApiKey.FETCH, request, version=16)
    (data,) = response.responses[0].partitions
    code, names_leader = LEADER_EPOCHS[leader_epoch]
    assert data.error_code == code
    expected = (1, 3) if names_leader else (-1, -1)
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == expected
    assert [endpoint.port for endpoint in response.node_endpoints] == [9092] * names_leader


# fmt: off
DIVERGING = {  # (last fetched epoch, offset) of a log with epoch 0 up to 2 and epoch 3 up to 3: code, diverging epoch
    (-2, 1): (0, (-1, -1)),
    (-1, 1): (0, (-1, -1)),
    (0, 2):  (0, (-1, -1)),
    (0, 3):  (0, (0, 2)),        # the client read beyond the end of epoch 0
    (1, 2):  (0, (0, 2)),        # an epoch that never was
    (3, 3):  (0, (-1, -1)),
    (4, 3):  (ErrorCode.OFFSET_OUT_OF_RANGE, (-1, -1)),
}
# fmt: on


@pytest.mark.parametrize("client", DIVERGING)
def test_diverging_epochs(client: tuple[int, int]) -> None:
    harness = filled(b"a", b"b")
    harness.broker.partitions.find("t", 0).begin_epoch(3)  # type: ignore[union-attr]
    harness.write("t", b"c")
    last_fetched_epoch, offset = client
    code, diverging = DIVERGING[client]
    (data,) = fetch(harness, asked(offset, last_fetched_epoch=last_fetched_epoch))
    assert (data.error_code, (data.diverging_epoch.epoch, data.diverging_epoch.end_offset)) == (code, diverging)


# Long polls.

ROOM: dict[str, Any] = {"max_wait_ms": 500, "min_bytes": 1}


def test_data_that_is_there_is_not_waited_for() -> None:
    assert len(filled(b"a").begin(ApiKey.FETCH, fetch_request(**ROOM), version=12)) == 1


@pytest.mark.parametrize(("waited_ms", "is_answered"), [(499, False), (500, True), (501, True)])
def test_deadline(waited_ms: int, is_answered: bool) -> None:
    harness = filled(b"a")
    answers = harness.begin(ApiKey.FETCH, fetch_request(asked(1), **ROOM), version=12)
    harness.node.advance(waited_ms)
    assert len(answers) == is_answered
    harness.write("t", b"b")
    assert len(answers) == 1


def test_what_is_written_ends_the_wait_and_is_in_the_answer() -> None:
    harness = filled(b"a")
    answers = harness.begin(ApiKey.FETCH, fetch_request(asked(1), **ROOM), version=12)
    harness.node.advance(100)
    harness.write("t", b"b")
    assert [values(a.responses[0].partitions[0]) for a in answers] == [[b"b"]]
    harness.write("t", b"c")
    harness.node.advance(1000)
    assert len(answers) == 1


@pytest.mark.parametrize(("least", "batches"), [(1, 1), (SIZE, 1), (SIZE + 1, 2), (2 * SIZE, 2), (2 * SIZE + 1, 3)])
def test_wait_ends_at_so_many_bytes(least: int, batches: int) -> None:
    harness = filled()
    answers = harness.begin(ApiKey.FETCH, fetch_request(max_wait_ms=500, min_bytes=least), version=12)
    for written in range(1, 4):
        harness.write("t", b"x")
        assert bool(answers) == (written >= batches)


def test_no_more_is_waited_for_than_may_be_sent() -> None:
    harness = filled(b"a")
    request = fetch_request(max_wait_ms=500, min_bytes=10_000, max_bytes=SIZE)
    assert len(harness.begin(ApiKey.FETCH, request, version=12)) == 1


def test_min_bytes_are_of_all_partitions() -> None:
    harness = filled(partitions=2)
    request = fetch_request(asked(partition=0), asked(partition=1), max_wait_ms=500, min_bytes=2 * SIZE)
    answers = harness.begin(ApiKey.FETCH, request, version=12)
    harness.write("t", b"x", partition=1)
    assert not answers
    harness.write("t", b"x", partition=0)
    assert len(answers) == 1


@watches_calls
def test_an_append_costs_the_same_however_many_partitions_a_request_waits_for() -> None:
    """The first messages of a process are read in another way (`FIRST_READS`), and do not count."""
    counts = []
    for partitions in (50, 2, 50):
        harness = filled(b"a", partitions=partitions)
        wanted = [asked(1, partition=partition) for partition in range(partitions)]
        answers = harness.begin(ApiKey.FETCH, fetch_request(*wanted, max_wait_ms=500, min_bytes=100 * SIZE), version=12)
        harness.node.settle()
        counts.append(calls(lambda: harness.write("t", b"x", partition=1)))  # noqa: B023 -- called at once
        assert not answers
    assert counts[1] == counts[2]


def test_each_append_counts_once_towards_min_bytes() -> None:
    harness = filled(partitions=3)
    wanted = [asked(partition=partition) for partition in range(3)]
    answers = harness.begin(ApiKey.FETCH, fetch_request(*wanted, max_wait_ms=500, min_bytes=5 * SIZE), version=12)
    for partition in (0, 1, 0, 2):
        harness.write("t", b"x", partition=partition)
        assert not answers
    harness.write("t", b"x", partition=1)
    assert [len(data.records or b"") for data in answers[0].responses[0].partitions] == [2 * SIZE, 2 * SIZE, SIZE]


# fmt: off
URGENT = {  # beside a partition that has nothing: is the request answered at once?
    "out of range":       (asked(7, partition=1), True),
    "fenced":             (asked(0, partition=1, current_leader_epoch=5), True),
    "unknown partition":  (asked(0, partition=9), False),
    "nothing new":        (asked(0, partition=1), False),
}
# fmt: on


@pytest.mark.parametrize("what", URGENT)
def test_errors_that_end_a_wait(what: str) -> None:
    other, is_urgent = URGENT[what]
    harness = filled(partitions=2)
    answers = harness.begin(ApiKey.FETCH, fetch_request(asked(partition=0), other, **ROOM), version=12)
    harness.node.settle()
    assert bool(answers) == is_urgent


def test_only_unknown_partitions_are_not_waited_for() -> None:
    request = fetch_request(asked(partition=9), **ROOM)
    (answer,) = filled().begin(ApiKey.FETCH, request, version=12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("what", [{"max_wait_ms": 0}, {"max_wait_ms": -1}, {"topics": (), "max_wait_ms": 500}])
def test_not_waited(what: dict[str, Any]) -> None:
    assert len(filled().begin(ApiKey.FETCH, fetch_request(**what), version=12)) == 1


def test_deleting_the_topic_ends_the_wait() -> None:
    harness = filled(partitions=2)
    request = fetch_request(asked(partition=0), asked(partition=1), **ROOM)
    answers = harness.begin(ApiKey.FETCH, request, version=12)
    harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=100), version=5)
    (answer,) = answers
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_has_gone_is_forgotten() -> None:
    harness = filled(partitions=2)
    request = fetch_request(asked(partition=0), asked(partition=1), **ROOM)
    answers = harness.begin(ApiKey.FETCH, request, version=12)
    others = harness.begin(ApiKey.FETCH, request, version=12)
    harness.node.settle()
    assert (harness.broker.fetches.delayed, harness.broker.fetches.watched) == (2, 4)
    harness.parked[0]()
    harness.parked[0]()
    assert harness.broker.fetches.delayed == 1
    harness.write("t", b"a")
    harness.node.advance(1_000_000)
    assert (len(answers), len(others)) == (0, 1)
    harness.parked[1]()
    assert (len(answers), len(others)) == (0, 1), "who was answered is not forgotten"


def test_those_that_were_answered_are_swept() -> None:
    harness = Harness(fetch_purgatory_purge_interval_requests="3")
    harness.create("t", 2)
    for offset in range(10):
        request = fetch_request(asked(offset, partition=0), asked(partition=1), **ROOM)
        answers = harness.begin(ApiKey.FETCH, request, version=12)
        harness.write("t", b"a", partition=0)
        assert len(answers) == 1
    assert harness.broker.fetches.delayed == 0
    assert harness.broker.fetches.watched <= 4


def test_many_waiters_of_one_partition_are_all_served() -> None:
    harness = filled()
    waits = [harness.begin(ApiKey.FETCH, fetch_request(**ROOM), version=12) for _ in range(5)]
    harness.write("t", b"a")
    assert [len(answers) for answers in waits] == [1] * 5


@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=12),
    st.integers(0, 4 * SIZE),
    st.integers(0, 4 * SIZE),
    st.integers(1, 300),
)
@settings(max_examples=60)
def test_a_consumer_sees_every_record_once_whatever_it_asks_for(
    batches: list[int], request_bytes: int, partition_bytes: int, min_bytes: int
) -> None:
    harness = filled()
    count = 0
    for size in batches:
        harness.write("t", *[str(count + index).encode() for index in range(size)])
        count += size
    seen: list[bytes | None] = []
    while len(seen) < count:
        request = fetch_request(
            asked(len(seen), bytes_max=partition_bytes), max_bytes=request_bytes, max_wait_ms=10, min_bytes=min_bytes
        )
        answers = harness.begin(ApiKey.FETCH, request, version=12)
        harness.node.advance(10)
        found = values(answers[0].responses[0].partitions[0])
        assert len(answers) == 1
        assert found
        seen += found
    assert seen == [str(index).encode() for index in range(count)]
