"""
What is asked of other nodes in one turn of the event loop: one request a node, as far as one may have it all.

Source: Kafka InterBrokerSendThread, whose users gather what waits for a node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from kohort.model.limits import PEER_ELEMENTS_MAX
from kohort.runtime.ports import Defer
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import Channel, Peers
from kohort.wire.apis import ApiKey

I = TypeVar("I")  # noqa: E741 -- an item
"""The thing that a question is about."""
A = TypeVar("A")
"""An answer."""


class Form(NamedTuple, Generic[I, A]):
    """
    The form of a question.

    Attributes:
        channel: the connection.
        request: makes the request for some items.
        answers: the place and the answer of each element of a response.
        lost: the answer of an item whose request has no response; of one that the response leaves out, for None.
    """

    channel: Channel
    api_key: ApiKey
    version: int
    request: Callable[[Sequence[I]], Any]
    answers: Callable[[Any], Iterable[tuple[Hashable, A]]]
    lost: Callable[[Lost | None], A]


class Gathering(Generic[I, A]):
    """The questions of one form."""

    def __init__(self, form: Form[I, A], peers: Peers, defer: Defer) -> None:
        self._form = form
        self._peers = peers
        self._defer = defer
        self._batches: dict[tuple[int, Hashable], list[_Batch[I, A]]] = {}
        """By node, and by what all items of a request have in common: the requests of this turn."""

    def ask(
        self,
        node_id: int,
        place: Hashable,
        item: I,
        done: Callable[[A], None],
        *,
        common: Hashable = None,
        weight: int = 1,
    ) -> None:
        """
        Ask a node about an item; `done` is called once, later.

        Args:
            place: of the item in a request and in its response. The items of one request differ in it.
            common: what all items of a request have in common.
            weight: elements that the item has in a request.
        """
        if not self._batches:
            self._defer(self._send)
        batches = self._batches.setdefault((node_id, common), [])
        if not batches or not batches[-1].has_room(place, weight):
            batches.append(_Batch())
        batches[-1].add(place, weight, item, done)

    def _send(self) -> None:
        form = self._form
        found, self._batches = self._batches, {}
        for (node_id, _), batches in found.items():
            for batch in batches:
                request = form.request([item for item, _ in batch.waiting.values()])
                on_answer = partial(_on_answer, form, batch)
                self._peers.send(node_id, form.channel, form.api_key, form.version, request, on_answer)


class _Batch(Generic[I, A]):
    """The items of one request."""

    def __init__(self) -> None:
        self._weight = 0
        self.waiting: dict[Hashable, tuple[I, Callable[[A], None]]] = {}

    def has_room(self, place: Hashable, weight: int) -> bool:
        return place not in self.waiting and self._weight + weight <= PEER_ELEMENTS_MAX

    def add(self, place: Hashable, weight: int, item: I, done: Callable[[A], None]) -> None:
        self._weight += weight
        self.waiting[place] = item, done


def _on_answer(form: Form[Any, Any], batch: _Batch[Any, Any], answer: Any) -> None:
    waiting = batch.waiting
    if not isinstance(answer, Lost):
        for place, answered in form.answers(answer):
            known = waiting.pop(place, None)
            if known is not None:
                known[1](answered)
    rest = form.lost(answer if isinstance(answer, Lost) else None)
    for _, done in waiting.values():
        done(rest)
