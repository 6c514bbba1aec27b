"""Long messages are freed some elements at a time."""

from typing import Any

from kohort.wire import messages as m
from kohort.wire.release import STEP_ELEMENTS, long_arrays, release
from kohort.wire.schema import message


class Counted:
    """An element that counts the elements that are alive."""

    alive = 0

    def __init__(self) -> None:
        Counted.alive += 1

    def __del__(self) -> None:
        Counted.alive -= 1


def test_a_long_array_is_freed_in_steps() -> None:
    schema = message("OffsetFetchResponse")
    elements: list[Any] = [Counted() for _ in range(3 * STEP_ELEMENTS)]
    topics = [
        m.OffsetFetchResponseTopics(name="t", partitions=elements),
        m.OffsetFetchResponseTopics(name="u", partitions=()),
    ]
    group = m.OffsetFetchResponseGroup(group_id="g", topics=topics)
    response: m.OffsetFetchResponse | None = m.OffsetFetchResponse(groups=[group])
    arrays = list(long_arrays(response, schema))
    del response, group, topics, elements
    assert Counted.alive == 3 * STEP_ELEMENTS
    assert [Counted.alive for _ in release(arrays)] == [2 * STEP_ELEMENTS, STEP_ELEMENTS, 0]


def test_short_arrays_are_left_alone() -> None:
    response = m.ListGroupsResponse(groups=[m.ListGroupsResponseListedGroup()] * STEP_ELEMENTS)
    assert list(long_arrays(response, message("ListGroupsResponse"))) == []
