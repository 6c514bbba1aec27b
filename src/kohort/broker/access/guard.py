"""The wrapper of a handler that asks the authorizer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

from kohort.broker.access.checks import Check, Complete, Decision
from kohort.broker.access.requester import Requester, Resources, Steps, Work, finished, result_of
from kohort.broker.access.table import ACCESS_TABLE
from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.ports import Context, Handler, NoResponse
from kohort.security.authorization import Authorizer
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from kohort.wire.templates import TemplateMatch


def guarded(authorizer: Authorizer, resources: Resources, api: ApiKey, handler: Handler) -> Handler:
    """The handler of an API behind its checks; the handler itself if everybody may call it."""
    checks = ACCESS_TABLE[api]
    if not any(check.is_asking for check in checks):
        return handler
    kind = (
        RepeatedGuard if hasattr(handler, "with_numbers") else StepwiseGuard if hasattr(handler, "in_steps") else Guard
    )
    guard = kind(checks, handler, authorizer.for_api(api), resources)
    return guard.handle_in_steps if API_TABLE[api].is_gradual else guard


class Guard:
    """One handler behind its checks; each request of a user is decided anew."""

    def __init__(self, checks: Sequence[Check], handler: Handler, authorizer: Authorizer, resources: Resources) -> None:
        self._checks = checks
        self._handler: Any = handler
        self._authorizer = authorizer
        self._resources = resources

    def __call__(self, request: Any, context: Context, reply: Callable[[Any], None]) -> Any:
        """Handle a request in one step."""
        requester = Requester(self._authorizer, self._resources, context)
        for place, check in enumerate(self._checks, 1):
            decided = check.decide(request, requester)
            if decided is not None:
                decision = drain(self._decide_rest(place, decided, request, requester))
                if decision is not None:
                    return self._handle_part(decision, context, reply)
                break
        return self._handler(request, context, reply)

    def _handle_part(self, decision: Decision, context: Context, reply: Callable[[Any], None]) -> Any:
        if decision.request is None:
            return decision.answer
        response = self._handler(decision.request, context, lambda late: reply(result_of(_completed(decision, late))))
        return None if response is None else result_of(_completed(decision, response))

    def handle_in_steps(
        self, request: Any, context: Context, reply: Callable[[Any], None]
    ) -> Generator[Any, None, Any]:
        """Handle a request in steps."""
        handler = getattr(self._handler, "in_steps", self._handler)
        requester = Requester(self._authorizer, self._resources, context)
        decision = yield from self._decide_rest(0, None, request, requester)
        if decision is None:
            response = handler(request, context, reply)
            return (yield from response) if isinstance(response, Generator) else response
        if decision.request is None:
            return decision.answer
        response = handler(decision.request, context, lambda late: reply(result_of(_completed(decision, late))))
        if isinstance(response, Generator):
            response = yield from response
        return None if response is None else (yield from finished(_completed(decision, response)))

    def _decide_rest(
        self, place: int, decided: Work[Decision | None], request: Any, requester: Requester
    ) -> Steps[Decision | None]:
        """
        The decision of all checks together; None if the whole request is allowed.

        Args:
            place: of the next check.
            decided: by the check before it.
        """
        whole = request
        completing: list[Complete] = []
        completes_silence = False
        answer: Any = None
        for check in (None, *self._checks[place:]):
            if check is not None:
                decided = check.decide(request, requester)
            decision = (yield from decided) if isinstance(decided, Generator) else decided
            if decision is None:
                continue
            request, answer = decision.request, decision.answer
            completes_silence = completes_silence or decision.completes_silence
            if decision.complete is not None:
                completing.append(decision.complete)
            if request is None:
                break
        if request is None:
            if not isinstance(answer, NoResponse):
                answer = yield from _complete_all(completing, answer)
            return Decision(answer=answer)
        if not completing:
            return None if request is whole else Decision(request)
        return Decision(request, lambda response: _complete_all(completing, response), None, completes_silence)


class StepwiseGuard(Guard):
    """A guard of a handler that works in steps; see `kohort.machine.gradual.Stepwise`."""

    @property
    def in_steps(self) -> Handler:
        return self.handle_in_steps


class RepeatedGuard(StepwiseGuard):
    """
    A guard of a handler that takes repeated requests; see `kohort.wire.templates`. A repeated request that was allowed as a
    whole is not decided again until the rules change: the connection of a template has one user.
    """

    def __call__(self, request: Any, context: Context, reply: Callable[[Any], None]) -> Any:
        if not isinstance(request, TemplateMatch):
            return super().__call__(request, context, reply)
        template, authorizer = request.template, self._authorizer
        version = authorizer.version
        if template.allowed_at == version and not authorizer.logs_permissions:
            return self._handler(request, context, reply)
        requester = Requester(authorizer, self._resources, context)
        for check in self._checks:
            if check.decide(template.request, requester) is not None:
                requester.is_repeating = True
                unfolded = request.unfold()
                decision = drain(self._decide_rest(0, None, unfolded, requester))
                if decision is not None:
                    return self._handle_part(decision, context, reply)
                break
        else:
            template.allowed_at = version
        return self._handler(request, context, reply)

    @property
    def with_numbers(self) -> Any:
        return self._handler.with_numbers


def _complete_all(completing: Sequence[Complete], response: Any) -> Steps[Any]:
    for complete in reversed(completing):
        response = yield from finished(complete(response))
    return response


def _completed(decision: Decision, response: Any) -> Work[Any]:
    """The answer of the client, from the answer of the handler."""
    if decision.complete is None or (isinstance(response, NoResponse) and not decision.completes_silence):
        return response
    return decision.complete(response)
