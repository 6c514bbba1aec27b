"""Fetch sessions as probed on Apache Kafka 4.2.1: who gets one, what changes it, and what is told in one."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from kohort.broker.records.fetch_sessions import EPOCH_MAX, EVICTION_MS, FetchContext, FetchSessionCache
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.testing.clock import ManualClock
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from tests.broker.harness import Harness
from tests.broker.records.in_steps import in_steps  # noqa: F401 -- a fixture

NAMES, IDS = 12, 13


def request(
    session: tuple[int, int],
    partitions: dict[int, int] | None = None,
    *,
    topic: str | UUID = "t",
    forget: Sequence[int] = (),
    **what: Any,
) -> m.FetchRequest:
    """A fetch; partitions to offsets, none for no topic at all."""
    where: dict[str, Any] = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    asked = [
        m.FetchRequestFetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in (partitions or {}).items()
    ]
    fields: dict[str, Any] = {
        "session_id": session[0],
        "session_epoch": session[1],
        "topics": [m.FetchRequestFetchTopic(**where, partitions=asked)] if asked else [],
        "forgotten_topics_data": [m.FetchRequestForgottenTopic(**where, partitions=list(forget))] if forget else [],
        "max_bytes": 1 << 20,
        "min_bytes": 1,
        "max_wait_ms": 0,
    }
    return m.FetchRequest(**fields | what)


def ask(harness: Harness, *args: Any, version: int = NAMES, **what: Any) -> tuple[int, int, dict[int, tuple[int, int]]]:
    """Code, session id, and by partition its code and how many bytes it had."""
    response = harness.ask(ApiKey.FETCH, request(*args, **what), version=version)
    told = {
        data.partition_index: (int(data.error_code), len(data.records or b""))
        for topic in response.responses
        for data in topic.partitions
    }
    return response.error_code, response.session_id, told


@pytest.fixture
def harness() -> Harness:
    harness = Harness()
    harness.create("t", 3)
    return harness


def begin(harness: Harness, offsets: dict[int, int] | None = None) -> int:
    code, session_id, _ = ask(harness, (0, 0), offsets or {0: 0, 1: 0, 2: 0})
    assert code == 0
    assert session_id > 0
    return session_id


# fmt: off
UNKNOWN = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
STRANGERS = {  # (session id, epoch), where that session is not known: code, and whether a session begins
    (0, -1): (0,       False),
    (0, 0):  (0,       True),
    (5, 0):  (0,       True),
    (5, -1): (0,       False),
    (5, 1):  (UNKNOWN, False),
    (5, 77): (UNKNOWN, False),
    (0, 1):  (UNKNOWN, False),
    (5, -2): (UNKNOWN, False),
}
# fmt: on


@pytest.mark.parametrize("session", STRANGERS)
def test_where_the_session_is_not_known(harness: Harness, session: tuple[int, int]) -> None:
    wanted, begins = STRANGERS[session]
    code, session_id, told = ask(harness, session, {0: 0})
    assert (code, session_id > 0, len(told)) == (wanted, begins, 0 if wanted else 1)


def test_only_news_is_told(harness: Harness) -> None:
    session = begin(harness)
    assert ask(harness, (session, 1)) == (0, session, {})
    harness.write("t", b"x", partition=1)
    code, _, told = ask(harness, (session, 2))
    assert (code, list(told)) == (0, [1])
    assert ask(harness, (session, 3), {1: 1}) == (0, session, {}), "asked from behind what is there"
    assert list(ask(harness, (session, 4), {1: 0})[2]) == [1]


def test_a_wait_ends_with_what_is_new(harness: Harness) -> None:
    session = begin(harness)
    answers = harness.begin(ApiKey.FETCH, request((session, 1), max_wait_ms=500), version=NAMES)
    harness.node.advance(499)
    assert answers == []
    harness.write("t", b"x", partition=2)
    (response,) = answers
    assert [data.partition_index for topic in response.responses for data in topic.partitions] == [2]


def test_partitions_come_and_go(harness: Harness) -> None:
    session = begin(harness, {0: 0})
    assert ask(harness, (session, 1), {1: 0}) == (0, session, {1: (0, 0)}), "new ones are told of once"
    for index in range(3):
        harness.write("t", b"x", partition=index)
    assert list(ask(harness, (session, 2), forget=[0])[2]) == [1]
    assert ask(harness, (session, 3), forget=[1]) == (0, 0, {}), "a session without partitions ends"
    assert ask(harness, (session, 4))[0] == UNKNOWN


def test_who_had_data_is_read_last(harness: Harness) -> None:
    session = begin(harness)
    for index in range(3):
        harness.write("t", b"x" * 10, partition=index)
    found = [
        [index for index, (_, size) in ask(harness, (session, 1 + n), max_bytes=1)[2].items() if size] for n in range(4)
    ]
    assert found == [[0], [1], [2], [0]]


def test_a_wrong_epoch_changes_nothing(harness: Harness) -> None:
    session = begin(harness)
    for epoch in (2, 7):
        assert ask(harness, (session, epoch), {0: 5}) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, {})
    assert ask(harness, (session, 1)) == (0, session, {})


def test_a_fetch_that_waits_has_lost_its_session_when_another_goes_on(harness: Harness) -> None:
    session = begin(harness)
    answers = harness.begin(ApiKey.FETCH, request((session, 1), max_wait_ms=500), version=NAMES)
    assert ask(harness, (session, 2)) == (0, session, {})
    harness.write("t", b"x")
    (response,) = answers
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert (response.session_id, response.responses) == (session, ())
    assert list(ask(harness, (session, 3))[2]) == [0], "who went on is told of it"


def test_names_and_ids_do_not_mix(harness: Harness) -> None:
    session = begin(harness)
    code, _, told = ask(harness, (session, 1), version=IDS)
    assert (code, told) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, {})
    assert ask(harness, (session, 1)) == (0, session, {})


def test_a_session_ends_with_a_full_fetch_of_its_id(harness: Harness) -> None:
    first = begin(harness)
    _, second, _ = ask(harness, (first, 0), {0: 0})
    assert second not in (0, first)
    assert ask(harness, (first, 1))[0] == UNKNOWN
    assert ask(harness, (second, -1), {0: 0})[1] == 0
    assert ask(harness, (second, 1))[0] == UNKNOWN


def test_a_full_fetch_of_nothing_begins_a_session(harness: Harness) -> None:
    code, session, told = ask(harness, (0, 0))
    assert (code, session > 0, told) == (0, True, {})


def test_errors_come_back_in_every_answer(harness: Harness) -> None:
    session = begin(harness, {0: 0, 9: 0})
    unknown = {9: (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)}
    assert ask(harness, (session, 1)) == (0, session, unknown)
    assert ask(harness, (session, 2)) == (0, session, unknown)


def delete(harness: Harness) -> None:
    request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name="t")], timeout_ms=1000)
    assert harness.ask(ApiKey.DELETE_TOPICS, request).responses[0].error_code == 0


def test_a_session_of_ids_notices_that_its_topic_is_another_one() -> None:
    harness = Harness()
    topic_id = harness.create("t")
    _, session, _ = ask(harness, (0, 0), {0: 0}, topic=topic_id, version=IDS)
    delete(harness)
    gone = {0: (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)}
    assert ask(harness, (session, 1), version=IDS) == (0, session, gone)
    harness.create("t")
    another = {0: (int(ErrorCode.INCONSISTENT_TOPIC_ID), 0)}
    assert ask(harness, (session, 2), version=IDS) == (0, session, another)
    ((answer,),) = [
        topic.partitions for topic in harness.ask(ApiKey.FETCH, request((session, 3)), version=IDS).responses
    ]
    assert answer.aborted_transactions is None, "as Apache Kafka has it; of a topic that is gone the list is empty"


def test_a_topic_that_was_created_again_is_told_at_once_and_then_after_a_pause() -> None:
    """
    Kafka answers at once each time (4.2.1, 4.4.0), and UNKNOWN_TOPIC_OR_PARTITION after the whole wait. A client that takes no
    notice would never rest.
    """
    harness = Harness()
    ids = [harness.create("t"), harness.create("idle")]
    fetched = [
        m.FetchRequestFetchTopic(topic_id=each, partitions=[m.FetchRequestFetchPartition(partition=0, fetch_offset=0)])
        for each in ids
    ]
    begun = harness.ask(ApiKey.FETCH, request((0, 0), topics=fetched), version=IDS)
    delete(harness)

    def waited_ms(epoch: int, max_wait_ms: int) -> tuple[int, list[int]]:
        """How long a fetch of the session waits, and the codes of its answer."""
        waiting = request((begun.session_id, epoch), max_wait_ms=max_wait_ms)
        answers = harness.begin(ApiKey.FETCH, waiting, version=IDS)
        harness.node.settle()
        now_ms = 0
        while not answers:
            harness.node.advance(1)
            now_ms += 1
        (answer,) = answers
        return now_ms, [data.error_code for topic in answer.responses for data in topic.partitions]

    assert waited_ms(1, 2_000) == (2_000, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    harness.create("t")
    changed = [int(ErrorCode.INCONSISTENT_TOPIC_ID)]
    assert waited_ms(2, 6_000) == (0, changed)
    assert waited_ms(3, 6_000) == (500, changed)
    assert waited_ms(4, 100) == (100, changed)
    waiting = harness.begin(ApiKey.FETCH, request((begun.session_id, 5), max_wait_ms=6_000), version=IDS)
    harness.write("idle", b"x")
    harness.node.settle()
    assert len(waiting) == 1, "records end the pause"


def test_a_session_of_names_goes_on_with_a_new_topic_of_the_name() -> None:
    harness = Harness()
    harness.create("t")
    harness.write("t", b"x")
    session = begin(harness, {0: 0})
    delete(harness)
    harness.create("t")
    assert ask(harness, (session, 1)) == (0, session, {0: (0, 0)})


def test_an_unknown_id_in_a_session(harness: Harness) -> None:
    unknown = {0: (int(ErrorCode.UNKNOWN_TOPIC_ID), 0)}
    _, session, told = ask(harness, (0, 0), {0: 0}, topic=UUID(int=99), version=IDS)
    assert told == unknown
    assert ask(harness, (session, 1), version=IDS) == (0, session, unknown)


def full(size: int) -> m.FetchRequest:
    return request((0, 0), dict.fromkeys(range(size), 0))


def begun(sessions: FetchSessionCache, size: int) -> int:
    context: FetchContext = drain(sessions.begin(full(size), uses_ids=False))
    context.take([data()] * size)
    return context.respond(()).session_id


def data() -> m.FetchResponsePartitionData:
    return m.FetchResponsePartitionData(partition_index=0, high_watermark=0, aborted_transactions=None, records=b"")


def test_room_is_limited() -> None:
    clock = ManualClock()
    sessions = FetchSessionCache(2, clock)
    small, large = begun(sessions, 1), begun(sessions, 3)
    assert begun(sessions, 9) == 0, "no room, and nobody is old"
    clock.set(clock.now_ms() + EVICTION_MS)
    drain(sessions.begin(request((small, 1)), uses_ids=False))
    drain(sessions.begin(request((large, 1)), uses_ids=False))
    clock.set(clock.now_ms() + 1)
    assert begun(sessions, 9) == 0, "they are old now, but were not when they were last used"
    drain(sessions.begin(request((small, 2)), uses_ids=False))
    drain(sessions.begin(request((large, 2)), uses_ids=False))
    assert begun(sessions, 1) == 0, "the old ones are not smaller"
    assert begun(sessions, 2) != 0, "an old one that is smaller goes"
    with pytest.raises(CoordinatorError):
        drain(sessions.begin(request((small, 3)), uses_ids=False))
    clock.set(clock.now_ms() + EVICTION_MS + 1)
    assert begun(sessions, 1) != 0, "an idle one goes"
    assert len(sessions) == 2


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    """Kafka bounds the sessions only. A client whose session is gone begins again with a full fetch."""
    sessions = FetchSessionCache(10, ManualClock(), partitions_max=5)
    first = begun(sessions, 3)
    assert first
    assert begun(sessions, 3) == 0
    second = begun(sessions, 2)
    assert second
    drain(sessions.begin(request((first, 1), {0: 5}), uses_ids=False))  # no further partition
    with pytest.raises(CoordinatorError) as raised:
        drain(sessions.begin(request((second, 1), {7: 0}), uses_ids=False))
    assert raised.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 1


def test_no_slots_no_sessions() -> None:
    assert begun(FetchSessionCache(0, ManualClock()), 1) == 0


def test_epochs_begin_again_at_1() -> None:
    sessions = FetchSessionCache(1, ManualClock())
    session = begun(sessions, 1)
    sessions._sessions[session].epoch = EPOCH_MAX
    drain(sessions.begin(request((session, EPOCH_MAX)), uses_ids=False))
    drain(sessions.begin(request((session, 1)), uses_ids=False))


def test_a_session_with_a_name_that_no_topic_can_have_is_not_kept() -> None:
    """Names of 32 kB, thousands in a request, would take a hundred megabytes for each session."""
    harness = Harness()
    harness.create("t")
    unknown = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)
    code, session, told = ask(harness, (0, 0), {0: 0}, topic="x" * 250)
    assert (code, session, told) == (0, 0, {0: unknown})
    _, session, _ = ask(harness, (0, 0), {0: 0}, topic="x" * 249)
    assert session
    assert ask(harness, (session, 1), {0: 0}, topic="y" * 250)[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(harness.broker.apis[1].fetch.sessions) == 0
