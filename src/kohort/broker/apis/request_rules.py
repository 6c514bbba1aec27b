"""
Rules about the elements of requests, for the table of APIs (`kohort.broker.apis.api_table`).

`Split` cuts a long request into parts for a handler that knows nothing of slices. This is right for APIs whose elements are
independent of each other: Kafka answers each of them as if it were alone. A part has at most `PART_ELEMENTS` elements, and the
responses of the parts are joined.

`Repeats` names the elements that are answered once: some APIs answer a few bytes of request with a response of any size, once
for each repetition.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from kohort.wire import messages as m

PART_ELEMENTS: Final = 250
LOOK_STEP: Final = 1_000
"""Elements that are only looked at, between two steps."""


class Split(msgspec.Struct, frozen=True):
    """
    How requests of one API are split, and their responses joined.

    Attributes:
        parts: the elements of a request in groups, each of which becomes a request; None is a step without a group.
        field: of the request, which takes such a group.
        joined: the field of the response that is joined.
        join: joins the values of that field.
        is_unique: whether repeated elements are answered once.
        since: the first version with this rule.
    """

    field: str
    parts: Callable[[Any], Iterator[Any]]
    joined: str
    join: Callable[[Iterable[Any]], list[Any]]
    is_unique: bool = False
    since: int = 0


def _chunks(elements: Sequence[Any]) -> Iterator[Any]:
    for low in range(0, len(elements), PART_ELEMENTS):
        yield elements[low : low + PART_ELEMENTS]


def _concatenated(lists: Iterable[Any]) -> list[Any]:
    return list(chain.from_iterable(lists))


def flat(field: str, joined: str, *, is_unique: bool = False) -> Split:
    """The elements are those of one array."""
    return Split(field, _chunks, joined, _concatenated, is_unique)


def by_topic(field: str, joined: str, partitions: str = "partitions", joined_partitions: str = "partitions") -> Split:
    """The elements are the partitions of topics."""

    def parts(topics: Sequence[Any]) -> Iterator[Any]:
        return _topics_in_parts(topics, partitions)

    def join(lists: Iterable[Any]) -> list[Any]:
        return _joined_topics(lists, joined_partitions)

    return Split(field, parts, joined, join)


def _topics_in_parts(topics: Sequence[Any], partitions: str) -> Iterator[Any]:
    part: list[Any] = []
    size = 0
    for topic in topics:
        elements = getattr(topic, partitions) or ()
        low = 0
        while True:
            some = elements[low : low + PART_ELEMENTS - size]
            part.append(topic if len(some) == len(elements) else with_field(topic, partitions, some))
            size += max(len(some), 1)
            low += len(some)
            if size >= PART_ELEMENTS:
                yield tuple(part)
                part, size = [], 0
            if low >= len(elements):
                break
    if part:
        yield tuple(part)


def _joined_topics(lists: Iterable[Any], partitions: str) -> list[Any]:
    """Concatenate topics; a topic that was split between two parts becomes one again."""
    topics: list[Any] = []
    growing: list[Any] | None = None
    """The partitions of the last topic, if it was in more than one part."""
    for part in lists:
        others = list(part)
        if topics and others and _identity(topics[-1]) == _identity(others[0]):
            if growing is None:
                growing = list(getattr(topics[-1], partitions))
                topics[-1] = msgspec.structs.replace(topics[-1], **{partitions: growing})
            growing += getattr(others.pop(0), partitions)
        if others:
            growing = None
            topics += others
    return topics


def _identity(topic: Any) -> tuple[Any, Any]:
    return getattr(topic, "name", None) or getattr(topic, "topic", None), getattr(topic, "topic_id", None)


def with_field(message: Any, field: str, value: Any) -> Any:
    """A copy of a request, or of a struct in it, with another value of one field."""
    if isinstance(message, msgspec.Struct):  # A repeated request is no decoded one.
        return msgspec.structs.replace(message, **{field: value})
    changed = copy(message)
    setattr(changed, field, value)
    return changed


OFFSETS_OF_TOPICS: Final = by_topic("topics", "topics", "partition_indexes")


def _groups_in_parts(groups: Sequence[Any]) -> Iterator[Any]:
    """Groups of OffsetFetch: one part for each group or piece of one; small groups share a part."""
    small: list[Any] = []
    for group in groups:
        if group.topics is None or (
            len(group.topics) <= 1 and not any(topic.partition_indexes for topic in group.topics)
        ):
            small.append(group)
            if len(small) >= PART_ELEMENTS:
                yield tuple(small)
                small = []
            continue
        if small:
            yield tuple(small)
            small = []
        for topics in _topics_in_parts(group.topics, "partition_indexes"):
            yield (with_field(group, "topics", topics),)
    if small:
        yield tuple(small)


def _joined_groups(lists: Iterable[Any]) -> list[Any]:
    """Concatenate groups of OffsetFetch; a group that was split becomes one again."""
    joined: list[Any] = []
    pieces: dict[int, list[Any]] = {}
    """The pieces of the groups that were in several parts, by their place in `joined`."""
    for part in lists:
        groups = list(part)
        if joined and groups and joined[-1].group_id == groups[0].group_id:
            pieces.setdefault(len(joined) - 1, [joined[-1]]).append(groups.pop(0))
        joined += groups
    for place, split in pieces.items():
        topics = _joined_topics((group.topics for group in split), "partitions")
        joined[place] = msgspec.structs.replace(split[0], topics=topics)
    return joined


OFFSETS_OF_GROUPS: Final = Split("groups", _groups_in_parts, "groups", _joined_groups, since=8)


def _produced_in_parts(topics: Sequence[Any]) -> Iterator[Any]:
    """The last entry of each partition: Kafka appends a repeated partition once. Source: `observed-4.2.1`, Produce."""
    last: dict[tuple[Any, Any, int], Any] = {}
    kinds: dict[tuple[Any, Any], Any] = {}
    count = 0
    for topic in topics:
        name = (topic.name, topic.topic_id)
        kinds.setdefault(name, topic)
        for partition in (*topic.partition_data, None):
            count += 1
            if count % LOOK_STEP == 0:
                yield None
            if partition is not None:
                last[(*name, partition.index)] = partition
    pairs = list(last.items())
    for low in range(0, len(pairs), PART_ELEMENTS):
        part: dict[tuple[Any, Any], list[Any]] = {}
        for (name, topic_id, _), partition in pairs[low : low + PART_ELEMENTS]:
            part.setdefault((name, topic_id), []).append(partition)
        yield tuple(with_field(kinds[name], "partition_data", tuple(partitions)) for name, partitions in part.items())


PRODUCED: Final = Split(
    "topic_data",
    _produced_in_parts,
    "responses",
    lambda lists: _joined_topics(lists, "partition_responses"),
)


class Repeats(NamedTuple):
    """
    Which elements of a request are answered once.

    Attributes:
        field: the array of the request.
        identity: of an element; of several with one identity the first is answered.
    """

    field: str
    identity: Callable[[Any], Hashable]


def _described_once(group_id: str) -> Hashable:
    return group_id


def _fetched_once(group: Any) -> Hashable:
    """All offsets of a group are asked for once; other groups are answered as often as they are given."""
    return group.group_id if group.topics is None else id(group)


GROUPS_ONCE: Final = Repeats("groups", _described_once)
GROUP_IDS_ONCE: Final = Repeats("group_ids", _described_once)
WHOLE_GROUPS_ONCE: Final = Repeats("groups", _fetched_once)


def produced_bytes(request: m.ProduceRequest) -> int:
    """The bytes that count for the quota of produced bytes: Kafka counts the whole request, Kohort the records."""
    return sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
