"""The wrapper of a handler that asks the authorizer."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from kohort.broker.access.checks import Complete, Decision
from kohort.broker.access.requester import Requester, Resources, finished, result_of
from kohort.broker.access.table import ACCESS_TABLE
from kohort.broker.api_table import API_TABLE
from kohort.broker.ports import Context, Handler, NoResponse
from kohort.machine.gradual import Stepwise
from kohort.security.authorization import Authorizer
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kohort.broker.access.checks import Check
    from kohort.broker.access.requester import Steps


def guarded(authorizer: Authorizer, resources: Resources, api: ApiKey, handler: Handler) -> Handler:
    """The handler of an API behind its checks; the handler itself if everybody may call it."""
    checks = ACCESS_TABLE[api]
    if not any(check.is_asking for check in checks):
        return handler
    guard = _Guard(checks, handler, authorizer.for_api(api), resources)
    if API_TABLE[api].is_gradual:
        return guard.in_steps
    return Stepwise(guard.in_steps) if hasattr(handler, "in_steps") else guard.at_once


class _Guard:
    """One handler behind its checks."""

    def __init__(self, checks: Sequence[Check], handler: Handler, authorizer: Authorizer, resources: Resources) -> None:
        self._checks = checks
        self._handler = handler
        self._handler_in_steps: Handler = getattr(handler, "in_steps", handler)
        self._authorizer = authorizer
        self._resources = resources

    def at_once(self, request: Any, context: Context, reply: Callable[[Any], None]) -> Any:
        """Handle a request in one step."""
        decision = drain(self._decide(request, context))
        if decision.request is None:
            return decision.answer
        complete = decision.complete
        if complete is None:
            return self._handler(decision.request, context, reply)
        response = self._handler(decision.request, context, lambda late: reply(_completed(decision, late)))
        return None if response is None else _completed(decision, response)

    def in_steps(self, request: Any, context: Context, reply: Callable[[Any], None]) -> Generator[Any, None, Any]:
        """Handle a request in steps."""
        decision = yield from self._decide(request, context)
        if decision.request is None:
            return decision.answer
        complete = decision.complete
        if complete is None:
            response = self._handler_in_steps(decision.request, context, reply)
        else:
            response = self._handler_in_steps(decision.request, context, lambda late: reply(_completed(decision, late)))
        if isinstance(response, Generator):
            response = yield from response
        if complete is None or response is None or _is_silent(decision, response):
            return response
        return (yield from finished(complete(response)))

    def _decide(self, request: Any, context: Context) -> Steps[Decision]:
        requester = Requester(self._authorizer, self._resources, context)
        completing: list[Complete] = []
        decision = Decision(request)
        completes_silence = False
        for check in self._checks:
            decided = check.decide(decision.request, requester)
            decision = (yield from decided) if isinstance(decided, Generator) else decided
            completes_silence = completes_silence or decision.completes_silence
            if decision.complete is not None:
                completing.append(decision.complete)
            if decision.request is None:
                break
        if not completing:
            return decision
        if decision.request is None:
            answer = decision.answer
            if not isinstance(answer, NoResponse):
                answer = yield from finished(_all(completing)(answer))
            return Decision(answer=answer)
        return Decision(decision.request, _all(completing), completes_silence=completes_silence)


def _all(completing: Sequence[Complete]) -> Complete:
    if len(completing) == 1:
        return completing[0]

    def complete(response: Any) -> Steps[Any]:
        for one in reversed(completing):
            response = yield from finished(one(response))
        return response

    return complete


def _is_silent(decision: Decision, response: Any) -> bool:
    return isinstance(response, NoResponse) and not decision.completes_silence


def _completed(decision: Decision, response: Any) -> Any:
    assert decision.complete is not None, "a decision without a rest needs no completion"
    return response if _is_silent(decision, response) else result_of(decision.complete(response))
