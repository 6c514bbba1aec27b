"""One response made of several."""

import threading

import pytest

from kohort.machine.response_aggregation import ResponseAggregator


def aggregator(size: int) -> tuple[ResponseAggregator[str, str], list[str]]:
    delivered: list[str] = []
    return ResponseAggregator(size, "".join, delivered.append), delivered


def test_parts_that_are_there_at_once_are_returned_in_order() -> None:
    parts, delivered = aggregator(2)
    parts.put(1, "b")
    parts.put(0, "a")
    assert (parts.finish(), delivered) == ("ab", [])


def test_nothing_to_wait_for() -> None:
    parts, delivered = aggregator(0)
    assert (parts.finish(), delivered) == ("", [])


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
@pytest.mark.parametrize("finished_after", [0, 1, 2])
def test_the_last_part_delivers_the_response(order: tuple[int, ...], finished_after: int) -> None:
    parts, delivered = aggregator(3)
    for count, index in enumerate(order):
        if count == finished_after:
            assert parts.finish() is None
        parts.put(index, None)
        parts.reply_to(index)("abc"[index])
        assert delivered == (["abc"] if count == 2 else [])


def test_parts_from_threads_deliver_once() -> None:
    for _ in range(200):
        parts, delivered = aggregator(4)
        start = threading.Barrier(5)

        def answer(index: int, parts: ResponseAggregator[str, str] = parts, start: threading.Barrier = start) -> None:
            start.wait()
            parts.reply_to(index)("abcd"[index])

        threads = [threading.Thread(target=answer, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        start.wait()
        returned = parts.finish()
        for thread in threads:
            thread.join()
        assert [*filter(None, [returned]), *delivered] == ["abcd"]
