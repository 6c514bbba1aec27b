"""Large Fetch answers take turns: the bytes that are sent in one turn of the event loop are bounded, whoever asks."""

from typing import Any

import pytest

from kohort.broker.records.fetch_turns import NEXT_TURN_MS
from kohort.model.errors import ErrorCode
from kohort.model.limits import FETCH_ANSWER_BYTES_MAX, FETCH_TURN_BYTES_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.broker.records.in_steps import in_steps  # noqa: F401 -- a fixture
from tests.broker.records.test_fetch import asked, fetch_request

MB = 1_000_000
READERS = 9


def filled(*sizes: int) -> Harness:
    harness = Harness()
    harness.create("t", 1, **{"max.message.bytes": "16000000"})
    harness.create("small", 1)
    harness.write("small", b"x")
    for size in sizes:
        harness.write("t", bytes(size))
    return harness


def begin(harness: Harness, topic: str = "t", **fields: Any) -> list[Any]:
    """Ask for everything in a topic."""
    wanted = {"max_bytes": 1 << 30, "max_wait_ms": 500} | fields
    offset = wanted.pop("offset", 0)
    return harness.begin(
        ApiKey.FETCH, fetch_request(asked(offset, bytes_max=1 << 30), topic=topic, **wanted), version=12
    )


def sizes(answers: list[list[Any]]) -> list[int]:
    """The bytes of records of each reader; 0 before its answer."""
    return [len(answer[0].responses[0].partitions[0].records) if answer else 0 for answer in answers]


def test_an_answer_has_a_bounded_size() -> None:
    harness = filled(*[MB] * 6)
    (size,) = sizes([begin(harness)])
    assert 3 * MB < size <= FETCH_ANSWER_BYTES_MAX


def test_a_larger_batch_is_sent_whole() -> None:
    harness = filled(9 * MB, MB)
    (size,) = sizes([begin(harness)])
    assert 9 * MB < size < 10 * MB


def test_the_bytes_of_a_turn_are_bounded_and_all_are_served_in_order() -> None:
    harness = filled(*[MB] * 6)
    answers = [begin(harness) for _ in range(READERS)]
    one = sizes(answers)[0]
    first = -(-FETCH_TURN_BYTES_MAX // one)
    served = first
    for _ in range(READERS):
        assert sizes(answers) == [one] * served + [0] * (READERS - served)
        assert sum(sizes(answers)[-served:]) <= served * FETCH_ANSWER_BYTES_MAX
        if served == READERS:
            break
        harness.node.advance(NEXT_TURN_MS)
        # A turn of waiting requests ends with the answer that reaches the size of one full answer.
        served = min(served + -(-FETCH_ANSWER_BYTES_MAX // one), READERS)
    assert len(harness.broker.fetch_turns) == 0


def test_a_small_request_goes_between_the_large_ones() -> None:
    harness = filled(*[MB] * 6)
    answers = [begin(harness) for _ in range(READERS)]
    assert sizes(answers)[-1] == 0
    assert harness.ask(ApiKey.API_VERSIONS, m.ApiVersionsRequest(), version=0).error_code == 0
    waiting = begin(harness, "small")
    assert not waiting, "the turn is full"
    early = len(harness.broker.fetch_turns)
    harness.node.advance(NEXT_TURN_MS)
    assert len(harness.broker.fetch_turns) < early
    assert begin(harness, "small"), "waiting requests leave room"


def test_a_client_that_has_disconnected_is_not_served() -> None:
    harness = filled(*[MB] * 6)
    harness.parked = []
    answers = [begin(harness) for _ in range(4)]
    assert sizes(answers)[-1] == 0
    harness.parked[-1]()
    harness.node.advance(100)
    assert [bool(answer) for answer in answers] == [True, True, True, False]


@pytest.mark.parametrize("is_deleted", [False, True])
def test_requests_that_wait_for_records_take_turns_too(is_deleted: bool) -> None:
    harness = filled()
    answers = [begin(harness, min_bytes=3 * MB, max_wait_ms=60_000) for _ in range(READERS)]
    for _ in range(3):
        harness.write("t", bytes(MB))
    if is_deleted:
        harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=100), version=5)
    done = sum(map(bool, answers))
    assert done < READERS or is_deleted
    for _ in range(READERS):
        harness.node.advance(NEXT_TURN_MS)
    assert all(answers)
    if is_deleted:
        (data,) = answers[-1][0].responses[0].partitions
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_request_that_waits_is_answered_in_time() -> None:
    harness = filled(*[MB] * 6)
    late = begin(harness, "small", offset=1, max_wait_ms=5)
    answers = [begin(harness) for _ in range(4)]
    harness.node.advance(5)
    assert late
    assert all(answers)
