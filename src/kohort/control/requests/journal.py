"""The journal: the last requests with their answers, as JSON values. Its entries and their bytes are bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final
from uuid import UUID

import msgspec

from kohort.broker.ports import NoResponse
from kohort.control.requests.answers import values_of
from kohort.control.requests.filters import OF_ELEMENTS, Call, Filter, Matcher, NameOf
from kohort.model.errors import ErrorCode
from kohort.model.limits import JOURNAL_BYTES_MAX, JOURNAL_ENTRIES_MAX
from kohort.server.requests.places import CODES, Facts, Place, answer_place_of, place_of
from kohort.server.requests.placing import codes_of, facts_of

_FACTS_MAX: Final = 1_000
"""Elements of a request by which its entry can be found."""


class Entry(msgspec.Struct, kw_only=True, omit_defaults=True):
    """
    One request.

    Attributes:
        seq: rises by one with each request.
        time_ms: when it came.
        response: null while it waits, and if there is none.
        outcome: "waiting", "answered", "unanswered" (the client expects no answer, or a fault withheld it) or "closed" (the
            connection was closed instead).
        errors: the names of the codes in the answer.
        fault: the id of the fault that hit it.
    """

    seq: int
    time_ms: int
    api: str
    version: int
    client_id: str
    connection: str
    listener: str
    broker: int
    principal: str
    request: msgspec.Raw
    response: msgspec.Raw | None = None
    outcome: str = "waiting"
    errors: list[str] = []
    fault: str | None = None


class Kept:
    """An entry with what filters ask of it."""

    __slots__ = ("call", "entry", "facts", "size_bytes")

    def __init__(self, entry: Entry, call: Call, facts: list[Facts], size_bytes: int) -> None:
        self.entry = entry
        self.call = call
        self.facts = facts
        self.size_bytes = size_bytes


class Journal:
    """
    Args:
        name_of: finds the names of topics.

    Attributes:
        is_on: whether requests are kept.
        dropped: entries that made room for others.
    """

    def __init__(self, name_of: NameOf) -> None:
        self._name_of = name_of
        self._kept: deque[Kept] = deque()
        self._bytes = 0
        self._seq = 0
        self.is_on = False
        self.dropped = 0

    @property
    def next_seq(self) -> int:
        """The number of the next entry."""
        return self._seq + 1

    def begin(self, call: Call, time_ms: int) -> Kept:
        """Keep a request that has come."""
        self._seq += 1
        request = msgspec.Raw(msgspec.json.encode(values_of(f"{call.api.api_name}Request", call.version, call.request)))
        entry = Entry(
            seq=self._seq,
            time_ms=time_ms,
            api=call.api.api_name,
            version=call.version,
            client_id=call.client_id,
            connection=call.connection,
            listener=call.listener,
            broker=call.broker,
            principal=call.principal,
            request=request,
        )
        facts = list(islice(_all_facts(place_of(call.api, call.version), call.request, call.facts), _FACTS_MAX))
        facts = [self._with_name(each) for each in facts]
        kept = Kept(entry, msgspec.structs.replace(call, request=None), facts, len(bytes(request)))
        self._kept.append(kept)
        self._grow(kept.size_bytes)
        return kept

    def _with_name(self, facts: Facts) -> Facts:
        """Facts with the name that the topic has now: it may be deleted when the journal is read."""
        topic_id = facts.get("topic_id")
        if not isinstance(topic_id, UUID) or "topic" in facts:
            return facts
        return {**facts, "topic": self._name_of(topic_id)}

    def end(self, kept: Kept, fault: str | None, response: Any) -> None:
        """Note the answer of a request; None if it gets none."""
        entry = kept.entry
        entry.fault = fault
        if response is None or response is NoResponse.NO_OP:
            entry.outcome = "unanswered"
        elif response is NoResponse.CLOSE_CONNECTION:
            entry.outcome = "closed"
        else:
            values = values_of(f"{entry.api}Response", entry.version, response)
            entry.response = msgspec.Raw(msgspec.json.encode(values))
            # Values show some of many elements only; the places of answers leave out codes such as those of acknowledgements.
            codes = {*_codes(values), *codes_of(answer_place_of(kept.call.api, entry.version), response)}
            entry.errors = sorted(ErrorCode(code).name for code in codes)
            entry.outcome = "answered"
            size_bytes = len(bytes(entry.response))
            kept.size_bytes += size_bytes
            if self._kept and entry.seq >= self._kept[0].entry.seq:
                self._grow(size_bytes)

    def _grow(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        while len(self._kept) > JOURNAL_ENTRIES_MAX or (self._bytes > JOURNAL_BYTES_MAX and len(self._kept) > 1):
            self._bytes -= self._kept.popleft().size_bytes
            self.dropped += 1

    def clear(self) -> None:
        self._kept.clear()
        self._bytes = 0

    def matching(self, given: Filter, since: int = 0) -> Iterator[Entry]:
        """
        The entries from a number on that match a filter, oldest first.

        Raises:
            ValueError: an API or a topic id of the filter is unknown.
        """
        matcher = Matcher(given, self._name_of)
        wants_element = any(getattr(given, word) is not None for word in OF_ELEMENTS)
        for kept in self._kept:
            if kept.entry.seq < since or not matcher.may_match(kept.call):
                continue
            if not wants_element or any(matcher.matches(facts) for facts in kept.facts):
                yield kept.entry


def _all_facts(place: Place, request: Any, above: Facts) -> Iterator[Facts]:
    facts = facts_of(place.words, request, above)
    has_elements = False
    for child in place.children:
        for element in child.elements(request):
            has_elements = True
            yield from _all_facts(child.place, element, facts)
    if not has_elements:
        yield facts


def _codes(values: Any) -> Iterator[int]:
    """The error codes of an answer, apart from NONE."""
    if isinstance(values, dict):
        for name, value in values.items():
            if name in CODES or name.endswith("_error_code"):
                if value:
                    yield value
            else:
                yield from _codes(value)
    elif isinstance(values, list):
        for each in values:
            yield from _codes(each)
