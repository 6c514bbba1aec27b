"""
Where faults, holds and the journal take hold of requests: handlers that are wrapped while there is something to do.

The way of one request is: hold, delay, effect before the handler, the handler, effect on its answer, hold of the answer, delay
of the answer. Each step may wait; without a wait the answer is returned in the same call, as the handler itself would.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Protocol, cast

from kohort.broker.ports import Handler, NoResponse
from kohort.control.requests.effects import Hit, after_effect, before_effect
from kohort.control.requests.faults import Fault
from kohort.control.requests.filters import Call, call_of
from kohort.control.requests.unfolded import facts_of_call
from kohort.server.connections.in_flight import InFlightRequest
from kohort.server.requests.dispatch import Throttle
from kohort.server.requests.places import place_of
from kohort.server.requests.placing import select
from kohort.wire.apis import ApiKey

Go = Callable[[], None]


class Hold(Protocol):
    """Takes a request or its answer, and lets it go later."""

    def take(self, call: Call, go: Go) -> None: ...


class Rules(Protocol):
    """The rules for requests."""

    def begin(self, call: Call) -> Any:
        """A request has come; what `end` gets of it."""

    def unfolded(self, call: Call) -> Any:
        """The request with what it leaves out, such as the partitions of its session."""

    def faults(self, api: ApiKey) -> list[Fault]: ...

    def hold_of(self, call: Call, at: str) -> Hold | None: ...

    def later(self, seconds: float, go: Go) -> None: ...

    def park(self, fault: Fault, go: Go) -> None:
        """Let a request wait until the fault is removed."""

    def keep_silent(self, end: Go) -> Go:
        """Note a request without an answer; `end` closes its connection when the broker stops. What is returned forgets it."""

    def end(self, entry: Any, fault: Fault | None, response: Any) -> None:
        """A request has its answer; None if it gets none."""


def interceptor(rules: Rules, api: ApiKey, broker: int) -> Throttle:
    """The wrapper of the handlers of an API."""

    def wrap(handler: Handler) -> Handler:
        def handle(request: Any, context: Any, reply: Callable[[Any], None]) -> Any:
            return Passage(rules, api, broker, handler, request, cast("InFlightRequest", context), reply).begin()

        return handle

    return wrap


class Passage:
    """One request on its way to its handler and back."""

    __slots__ = ("_answer", "_entry", "_handler", "_is_inside", "_reply", "_rules", "call", "context", "hit")

    def __init__(
        self,
        rules: Rules,
        api: ApiKey,
        broker: int,
        handler: Handler,
        request: Any,
        context: InFlightRequest,
        reply: Callable[[Any], None],
    ) -> None:
        self._rules = rules
        self._handler = handler
        self._reply = reply
        self._is_inside = False
        self._answer: Any = None
        self.context = context
        self.hit: Hit | None = None
        self.call = call_of(context, broker, request, facts_of_call(api, request))
        self._entry = rules.begin(self.call)

    def begin(self) -> Any:
        """The answer if it is known at once, None if it comes later, or the steps of a handler that has some."""
        self._is_inside = True
        steps = self._first()
        self._is_inside = False
        return steps if steps is not None else self._answer

    def _first(self) -> Any:
        hold = self._rules.hold_of(self.call, "request")
        if hold is not None:
            hold.take(self.call, self._go_on)
            return None
        return self._choose()

    def _go_on(self) -> None:
        self._later(self._choose())

    def _later(self, steps: Any) -> None:
        """Take the steps of a handler that was called in a later turn."""
        if steps is not None:
            self.context.go_on(steps, self._answered)

    def _choose(self) -> Any:
        """Find the fault that has its effect on the request."""
        call = self.call
        whole: Any = None
        for fault in self._rules.faults(call.api):
            if fault.is_spent or not fault.matcher.may_match(call):
                continue
            if whole is None:
                whole = self._rules.unfolded(call)
            selected = select(place_of(call.api, call.version), whole, call.facts, fault.matcher.matches)
            if selected is None or not fault.fires():
                continue
            fault.hit()
            if not fault.is_observer:
                self.hit = Hit(fault, selected, whole, call, self.context, self._rules.later, self._finish)
                break
        if self.hit is None:
            return self._handle(call.request)
        fault = self.hit.fault
        if fault.effect == "black_hole":
            self._rules.park(fault, lambda: self._later(self._handle(call.request)))
            return None
        if fault.spec.delay is not None and not fault.is_after:
            self._rules.later(fault.spec.delay, lambda: self._later(self._affect()))
            return None
        return self._affect()

    def _affect(self) -> Any:
        assert self.hit is not None
        before = before_effect(self.hit)
        if before.answer is not None:
            self._let_answer_go(before.answer)
            return None
        if before.is_silent:
            self._be_silent()
            return None
        return self._handle(before.request)

    def _handle(self, request: Any) -> Any:
        response = self._handler(request, self.context, self._answered)
        if isinstance(response, Generator):
            return self._steps(response)
        if response is not None:
            self._answered(response)
        return None

    def _steps(self, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
        response = yield from steps
        if response is None:
            return None
        self._is_inside = True
        self._answered(response)
        self._is_inside = False
        return self._answer

    def _answered(self, response: Any) -> None:
        hit = self.hit
        if hit is not None:
            response = after_effect(hit, response)
            if response is None:
                if hit.fault.effect == "silence":
                    self._be_silent()
                return
        self._let_answer_go(response)

    def _let_answer_go(self, response: Any) -> None:
        hold = self._rules.hold_of(self.call, "reply")
        if hold is not None:
            hold.take(self.call, lambda: self._delay(response))
        else:
            self._delay(response)

    def _delay(self, response: Any) -> None:
        hit = self.hit
        if hit is not None and hit.fault.is_after and hit.fault.spec.delay is not None:
            self._rules.later(hit.fault.spec.delay, lambda: self._leave(response))
        else:
            self._leave(response)

    def _leave(self, response: Any) -> None:
        self._rules.end(self._entry, None if self.hit is None else self.hit.fault, response)
        if self._is_inside:
            self._answer = response
        else:
            self._reply(response)

    def _be_silent(self) -> None:
        """Leave the request without an answer; the requests behind it wait until the connection ends."""
        assert self.hit is not None
        self._rules.end(self._entry, self.hit.fault, None)
        forget = self._rules.keep_silent(lambda: self._reply(NoResponse.CLOSE_CONNECTION))
        self.context.when_abandoned(forget)

    def _finish(self, response: Any) -> None:
        """Answer after an effect that took its time."""
        self._rules.end(self._entry, None if self.hit is None else self.hit.fault, response)
        self._reply(response)
