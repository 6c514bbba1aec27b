"""The selection of elements by filters, and answers with an error where it belongs: the places are those of `places.py`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from kohort.server.requests.places import KEPT, AnswerPlace, Facts, Matches, Place

_BLANKS: Final = {
    "base_offset": -1,
    "committed_leader_epoch": -1,
    "committed_offset": -1,
    "end_offset": -1,
    "generation_id": -1,
    "high_watermark": -1,
    "last_stable_offset": -1,
    "leader_epoch": -1,
    "leader_id": -1,
    "log_append_time_ms": -1,
    "log_start_offset": -1,
    "metadata": "",
    "records": b"",
    "low_watermark": -1,
    "node_id": -1,
    "offset": -1,
    "port": -1,
    "preferred_read_replica": -1,
    "producer_epoch": -1,
    "producer_id": -1,
    "start_offset": -1,
    "timestamp": -1,
}
"""Values of fields beside an error code, as Kafka answers."""


def facts_of(words: Sequence[tuple[str, str]], struct: Any, above: Facts) -> dict[str, Any]:
    """The names in a struct and in the structs above it."""
    facts = dict(above)
    for word, field in words:
        value = getattr(struct, field) if field else struct
        if value is not None and (value != "" or word == "group"):
            if word == "key":
                word = "transactional_id" if above.get("key_type") == 1 else "group"
            facts[word] = value
    return facts


WHOLE: Final = "whole"
Selected: TypeAlias = "str | dict[tuple[int, int], Any] | None"
"""WHOLE, or by (child, element): what is selected of it; None for nothing."""


def select(place: Place, request: Any, facts: Facts, matches: Matches) -> Selected:
    """
    What a filter selects of a request: all of it, or some of its elements.

    Args:
        facts: of the request as a whole.
    """
    facts = facts_of(place.words, request, facts)
    verdict = matches(facts)
    if verdict is not None:
        return WHOLE if verdict else None
    found: dict[tuple[int, int], Any] = {}
    for number, child in enumerate(place.children):
        for index, element in enumerate(child.elements(request)):
            selected = select(child.place, element, facts, matches)
            if selected is not None:
                found[number, index] = selected
    return found or None


def has_place(place: Place, request: Any) -> bool:
    """Whether the answer to a request has a code at all: one without elements may have none."""
    return bool(place.code) or any(
        has_place(child.place, element) for child in place.children for element in child.elements(request)
    )


def refused(place: Place, request: Any, code: int, text: str | None, *, is_deep: bool) -> Any:
    """The answer to a request, or to an element, that is refused as a whole."""
    fields = {answer: getattr(request, field) if field else request for answer, field in place.kept}
    children = [child for child in place.children if child.elements(request)]
    if place.code and not (is_deep and children):
        return _coded(place.answer, place.code, place.message, code, text, fields)
    for child in children:
        answers = [refused(child.place, each, code, text, is_deep=is_deep) for each in child.elements(request)]
        fields[child.answers] = [*fields.get(child.answers, ()), *answers]
    return place.answer(**fields)


def _coded(
    kind: type[msgspec.Struct], field: str, message_field: str, code: int, text: str | None, fields: dict[str, Any]
) -> Any:
    names = kind.__struct_fields__
    values = {name: _BLANKS[name] for name in names if name in _BLANKS} | fields
    values[field] = code
    if message_field:
        values[message_field] = text
    return kind(**values)


def split(
    place: Place, request: Any, selected: dict[tuple[int, int], Any], code: int, text: str | None
) -> tuple[Any, Any]:
    """The request without the selected elements, None if nothing is left of it, and the answer with these alone."""
    fields = {answer: getattr(request, field) if field else request for answer, field in place.kept}
    kept_request = request
    is_left = False
    for number, child in enumerate(place.children):
        kept, answers = [], []
        for index, element in enumerate(child.elements(request)):
            chosen = selected.get((number, index))
            if chosen is None:
                kept.append(element)
            elif chosen == WHOLE:
                answers.append(refused(child.place, element, code, text, is_deep=True))
            else:
                rest, answer = split(child.place, element, chosen, code, text)
                answers.append(answer)
                if rest is not None:
                    kept.append(rest)
        is_left = is_left or bool(kept)
        kept_request = child.with_elements(kept_request, kept)
        if answers:
            fields[child.answers] = [*fields.get(child.answers, ()), *answers]
    return kept_request if is_left else None, place.answer(**fields)


def _key(element: Any, names: Sequence[str]) -> Any:
    """The key of an element of an answer; an entity of quotas is an array, which cannot be hashed."""
    return tuple(
        [repr(value) if isinstance(value := getattr(element, name), (list, tuple)) else value for name in names]
    )


def merged(place: Place, response: Any, part: Any) -> Any:
    """The answer of a handler with the elements that it did not get."""
    changes = {}
    for child in place.children:
        own, more = list(getattr(response, child.answers) or ()), getattr(part, child.answers) or ()
        names = [answer for answer, _ in child.place.kept]
        known = {_key(each, names): index for index, each in enumerate(own)} if names else {}
        for element in more:
            index = known.get(_key(element, names))
            if index is None:
                own.append(element)
            else:
                own[index] = merged(child.place, own[index], element) if child.place.children else element
        changes[child.answers] = own
    return msgspec.structs.replace(response, **changes)


def overwritten(
    place: AnswerPlace, response: Any, facts: Facts, matches: Matches, code: int, text: str | None, *, is_deep: bool
) -> tuple[Any, int]:
    """
    An answer with the code where a filter matches, and the number of these places.

    Args:
        facts: of the request as a whole.
    """
    facts = facts_of(place.words, response, facts)
    verdict = matches(facts)
    if verdict is False:
        return response, 0
    children = [(field, below) for field, below in place.children if getattr(response, field)]
    if verdict and place.code and not (is_deep and children):
        kept = {name: getattr(response, name) for name in response.__struct_fields__ if name in KEPT}
        kept = kept if place.words else {}
        return _coded(type(response), place.code, place.message, code, text, kept), 1
    changes: dict[str, Any] = {}
    count = 0
    for field, below in children:
        elements = []
        for element in getattr(response, field):
            new, hits = overwritten(below, element, facts, matches, code, text, is_deep=is_deep)
            count += hits
            elements.append(new)
        changes[field] = elements
    return (msgspec.structs.replace(response, **changes), count) if count else (response, 0)


def codes_of(place: AnswerPlace, response: Any) -> Iterator[int]:
    """The error codes of an answer at all its places, apart from NONE."""
    if place.code and (code := getattr(response, place.code)):
        yield code
    for field, below in place.children:
        for element in getattr(response, field) or ():
            yield from codes_of(below, element)
