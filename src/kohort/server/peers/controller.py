"""
Requests to the controller: to the one that this node knows, and to the next one while none has got the request.

A request that was sent and has no response is not repeated: nobody knows whether it has changed something. Kafka repeats it.

Source: Kafka NodeToControllerRequestThread.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from kohort.broker.cluster import NO_NODE_ID
from kohort.broker.ports import CallLater
from kohort.model.errors import ErrorCode
from kohort.runtime.ports import Clock
from kohort.server.peers.peer import Done, Lost
from kohort.server.peers.peers import REQUEST_MS, Channel, Directory, Peers
from kohort.server.requests.places import answer_place_of
from kohort.server.requests.placing import codes_of
from kohort.wire.apis import ApiKey

RETRY_MS: Final = 50
"""The pause before the controller is looked for again. Source: retry.backoff.ms of the channel to controllers."""


class ControllerChannel:
    """Asks the controller, whichever node it is."""

    def __init__(self, directory: Directory, peers: Peers, clock: Clock, call_later: CallLater) -> None:
        self._directory = directory
        self._peers = peers
        self._clock = clock
        self._call_later = call_later

    def ask(self, api_key: ApiKey, version: int, request: Any, done: Done, timeout_ms: int = REQUEST_MS) -> None:
        """Have the controller handle a request; `done` is called once, with its response or with `Lost`."""
        self._attempt(api_key, version, request, done, self._clock.now_ms() + timeout_ms)

    def _attempt(self, api_key: ApiKey, version: int, request: Any, done: Done, until_ms: int) -> None:
        left_ms = until_ms - self._clock.now_ms()
        if left_ms <= 0:
            done(Lost("no controller has answered in time", is_late=True))
            return
        again = partial(self._attempt, api_key, version, request, done, until_ms)
        controller = self._directory.controller
        if controller == NO_NODE_ID:
            self._call_later(RETRY_MS, again)
            return

        def on_answer(answer: Any) -> None:
            if answer.was_sent if isinstance(answer, Lost) else not _is_refused(api_key, version, answer):
                done(answer)
            else:
                self._call_later(RETRY_MS, again)

        self._peers.send(controller, Channel.CONTROLLER, api_key, version, request, on_answer, left_ms)


def _is_refused(api_key: ApiKey, version: int, response: Any) -> bool:
    """Whether the node that was asked is not the controller any more."""
    return ErrorCode.NOT_CONTROLLER in codes_of(answer_place_of(api_key, version), response)
