"""
Long requests in parts: a handler that knows nothing of slices handles some elements of a long request at a time.

This is right for APIs whose elements are independent of each other: Kafka answers each of them as if it were alone. `SPLITS`
lists these APIs. A part has at most `PART_ELEMENTS` elements, and the responses of the parts are joined.

Some APIs answer a few bytes of request with a response of any size, once for each repetition. `REPEATS` lists the APIs that
answer repeated elements once here.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, Final

import msgspec

from kohort.broker.ports import Handler, NoResponse
from kohort.machine.gradual import GradualHandler
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.wire.apis import ApiKey

PART_ELEMENTS: Final = 250


class Split(msgspec.Struct, frozen=True):
    """
    How requests of one API are split, and their responses joined.

    Attributes:
        parts: the elements of a request in groups, each of which becomes a request; None between them is a step without result.
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
    return [element for elements in lists for element in elements]


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
    """Concatenate topics; a topic that was split becomes one again."""
    topics: list[Any] = []
    for topic in _concatenated(lists):
        last = topics[-1] if topics else None
        if last is not None and _identity(last) == _identity(topic):
            getattr(last, partitions).extend(getattr(topic, partitions))
        else:
            topics.append(msgspec.structs.replace(topic, **{partitions: list(getattr(topic, partitions))}))
    return topics


def _identity(topic: Any) -> tuple[Any, Any]:
    return getattr(topic, "name", None) or getattr(topic, "topic", None), getattr(topic, "topic_id", None)


def _with(message: Any, field: str, value: Any) -> Any:
    """A copy of a decoded request, or of a struct in it, with another value of one field."""
    changed = copy(message)
    setattr(changed, field, value)
    return changed


SPLITS: Final[dict[ApiKey, Split]] = {
    ApiKey.FIND_COORDINATOR: _flat("coordinator_keys", "coordinators"),
    ApiKey.DESCRIBE_GROUPS: _flat("groups", "groups", is_unique=True),
    ApiKey.DELETE_GROUPS: _flat("groups_names", "results", is_unique=True),
    ApiKey.DESCRIBE_PRODUCERS: _by_topic("topics", "topics", "partition_indexes"),
    ApiKey.DELETE_RECORDS: _by_topic("topics", "topics"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _by_topic("topics", "topics"),
}


def in_parts(api_key: ApiKey, handler: Handler) -> Handler:
    """A handler that passes a request on in parts, as a generator; the handler itself if it works in steps, or has no rule."""
    rule = SPLITS.get(api_key)
    if rule is None or isinstance(handler, GradualHandler):
        return handler
    return _in_parts(handler, rule)


def _in_parts(handler: Handler, rule: Split) -> Handler:

    def handle(request: Any, context: Any, reply: Any) -> Generator[None, None, Any]:
        parts: list[Any] = []
        elements = getattr(request, rule.field) or ()
        for part in rule.parts(tuple(dict.fromkeys(elements)) if rule.is_unique else elements):
            parts.append(part)
            yield
        if not parts:
            return handler(request, context, reply)

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


REPEATS: Final[dict[ApiKey, str]] = {ApiKey.DESCRIBE_GROUPS: "groups"}
"""The array of hashable elements whose repetitions are dropped."""


def without_repeats(api_key: ApiKey, handler: Handler) -> Handler:
    """The handler of an API, behind the rule of `REPEATS`."""
    field = REPEATS.get(api_key)
    if field is None:
        return handler
    name = field

    def handle(request: Any, context: Any, reply: Any) -> Any:
        elements = getattr(request, name)
        unique = tuple(dict.fromkeys(elements))
        return handler(request if len(unique) == len(elements) else _with(request, name, unique), context, reply)

    return GradualHandler(handle) if isinstance(handler, GradualHandler) else handle
