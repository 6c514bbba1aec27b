"""
Long requests in parts: a handler that knows nothing of slices handles some elements of a long request at a time.

This is right for APIs whose elements are independent of each other: Kafka answers each of them as if it were alone. `SPLITS`
lists these APIs. A part has at most `PART_ELEMENTS` elements, and the responses of the parts are joined.

Some APIs answer a few bytes of request with a response of any size, once for each repetition. `REPEATS` lists the APIs that
answer repeated elements once here.
"""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Any, Final

import msgspec

from kohort.broker.ports import Handler, NoResponse
from kohort.machine.gradual import GradualHandler, distinct
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain

PART_ELEMENTS: Final = 250
_STEP: Final = 1_000
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
    """

    field: str
    parts: Callable[[Any], Iterator[Any]]
    joined: str
    join: Callable[[Iterable[Any]], list[Any]]
    is_unique: bool = False


def _chunks(elements: Sequence[Any]) -> Iterator[Any]:
    for low in range(0, len(elements), PART_ELEMENTS):
        yield elements[low : low + PART_ELEMENTS]


def _concatenated(lists: Iterable[Any]) -> list[Any]:
    return list(chain.from_iterable(lists))


def _flat(field: str, joined: str, *, is_unique: bool = False) -> Split:
    """The elements are those of one array."""
    return Split(field, _chunks, joined, _concatenated, is_unique)


def _by_topic(field: str, joined: str, partitions: str = "partitions", joined_partitions: str = "partitions") -> Split:
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
            part.append(topic if len(some) == len(elements) else _with(topic, partitions, some))
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


def _with(message: Any, field: str, value: Any) -> Any:
    """A copy of a decoded request, or of a struct in it, with another value of one field."""
    changed = copy(message)
    setattr(changed, field, value)
    return changed


_OFFSETS_OF_TOPICS = _by_topic("topics", "topics", "partition_indexes")


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
            yield (_with(group, "topics", topics),)
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


_OFFSETS_OF_GROUPS = Split("groups", _groups_in_parts, "groups", _joined_groups)
_SEVERAL_GROUPS_SINCE = 8


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
            if count % _STEP == 0:
                yield None
            if partition is not None:
                last[(*name, partition.index)] = partition
    pairs = list(last.items())
    for low in range(0, len(pairs), PART_ELEMENTS):
        part: dict[tuple[Any, Any], list[Any]] = {}
        for (name, topic_id, _), partition in pairs[low : low + PART_ELEMENTS]:
            part.setdefault((name, topic_id), []).append(partition)
        yield tuple(_with(kinds[name], "partition_data", tuple(partitions)) for name, partitions in part.items())


SPLITS: Final[dict[ApiKey, Split]] = {
    ApiKey.PRODUCE: Split(
        "topic_data",
        _produced_in_parts,
        "responses",
        lambda lists: _joined_topics(lists, "partition_responses"),
    ),
    ApiKey.LIST_OFFSETS: _by_topic("topics", "topics"),
    ApiKey.OFFSET_DELETE: _by_topic("topics", "topics"),
    ApiKey.FIND_COORDINATOR: _flat("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: _flat("groups", "groups", is_unique=True),
    ApiKey.DELETE_GROUPS: _flat("groups_names", "results", is_unique=True),
    ApiKey.DESCRIBE_TRANSACTIONS: _flat("transactional_ids", "transaction_states"),
    ApiKey.DESCRIBE_PRODUCERS: _by_topic("topics", "topics", "partition_indexes"),
    ApiKey.DELETE_RECORDS: _by_topic("topics", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _by_topic("topics", "topics"),
}


def in_parts(api_key: ApiKey, version: int, handler: Handler) -> Handler:
    """
    A handler that passes a request on in parts, as a generator; the handler itself if it works in steps, or has no rule. A
    handler with a form for long requests (`kohort.machine.gradual.LongHandler`) is replaced by this form.
    """
    in_steps = getattr(handler, "in_steps", None)
    if in_steps is not None:
        return GradualHandler(in_steps)
    rule = SPLITS.get(api_key)
    if api_key is ApiKey.OFFSET_FETCH:
        rule = _OFFSETS_OF_GROUPS if version >= _SEVERAL_GROUPS_SINCE else _OFFSETS_OF_TOPICS
    if rule is None or isinstance(handler, GradualHandler):
        return handler
    return _in_parts(handler, rule)


def _in_parts(handler: Handler, rule: Split) -> Handler:

    def handle(request: Any, context: Any, reply: Any) -> Generator[None, None, Any]:
        parts: list[Any] = []
        elements = getattr(request, rule.field) or ()
        if rule.is_unique:
            elements = yield from distinct(elements)
        for part in rule.parts(elements):
            if part is not None:
                parts.append(part)
            yield
        if not parts:
            return handler(_with(request, rule.field, ()) if elements else request, context, reply)

        def merge(responses: Sequence[Any]) -> Any:
            for response in responses:
                if isinstance(response, NoResponse):
                    return response
            joined = rule.join(getattr(response, rule.joined) for response in responses)
            return msgspec.structs.replace(responses[0], **{rule.joined: joined})

        aggregator: ResponseAggregator[Any, Any] = ResponseAggregator(len(parts), merge, reply)
        for index, part in enumerate(parts):
            answer = handler(_with(request, rule.field, part), context, aggregator.reply_to(index))
            aggregator.put(index, answer)
            yield
        return aggregator.finish()

    return GradualHandler(handle)


def _described_once(group_id: str) -> Hashable:
    return group_id


def _fetched_once(group: Any) -> Hashable:
    """All offsets of a group are asked for once; other groups are answered as often as they are given."""
    return group.group_id if group.topics is None else id(group)


REPEATS: Final[dict[ApiKey, tuple[str, Callable[[Any], Hashable]]]] = {
    ApiKey.DESCRIBE_GROUPS: ("groups", _described_once),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ("group_ids", _described_once),
    ApiKey.OFFSET_FETCH: ("groups", _fetched_once),
}
"""The array of a request, and the identity of its elements: of several with one identity the first is answered."""


def without_repeats(api_key: ApiKey, handler: Handler) -> Handler:
    """The handler of an API, behind the rule of `REPEATS`."""
    rule = REPEATS.get(api_key)
    if rule is None:
        return handler
    field, identity = rule

    def first_of_each(request: Any) -> Generator[None, None, Any]:
        elements = getattr(request, field)
        first: dict[Hashable, Any] = {}
        for number, element in enumerate(elements, 1):
            first.setdefault(identity(element), element)
            if number % _STEP == 0:
                yield
        return _with(request, field, tuple(first.values())) if len(first) < len(elements) else request

    def handle(request: Any, context: Any, reply: Any) -> Any:
        if len(getattr(request, field)) > 1:
            request = drain(first_of_each(request))
        return handler(request, context, reply)

    def handle_in_steps(request: Any, context: Any, reply: Any) -> Generator[None, None, Any]:
        request = yield from first_of_each(request)
        return (yield from handler(request, context, reply))

    return GradualHandler(handle_in_steps) if isinstance(handler, GradualHandler) else handle
