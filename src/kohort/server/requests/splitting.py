"""Handlers behind the rules of `kohort.broker.apis.request_rules`: long requests in parts, and repeated elements once."""

from collections.abc import Generator, Hashable, Sequence
from typing import Any

import msgspec

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.apis.request_rules import LOOK_STEP, Split, with_field
from kohort.broker.ports import Handler, NoResponse
from kohort.machine.gradual import distinct
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from kohort.wire.templates import Repeatable, RequestTemplate


def in_parts(api_key: ApiKey, version: int, handler: Handler) -> Handler:
    """
    A handler that passes a request on in parts, as a generator; the handler itself if its API has no rule. A handler in
    steps (`kohort.machine.gradual.Stepwise`) gives its steps.
    """
    in_steps: Handler | None = getattr(handler, "in_steps", None)
    if in_steps is not None:
        return in_steps
    rules = [rule for rule in API_TABLE[api_key].splits if version >= rule.since]
    return _in_parts(handler, rules[-1]) if rules else handler


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
            return handler(with_field(request, rule.field, ()) if elements else request, context, reply)

        def merge(responses: Sequence[Any]) -> Any:
            for response in responses:
                if isinstance(response, NoResponse):
                    return response
            joined = rule.join(getattr(response, rule.joined) for response in responses)
            return msgspec.structs.replace(responses[0], **{rule.joined: joined})

        aggregator: ResponseAggregator[Any, Any] = ResponseAggregator(len(parts), merge, reply)
        for index, part in enumerate(parts):
            answer = handler(with_field(request, rule.field, part), context, aggregator.reply_to(index))
            aggregator.put(index, answer)
            yield
        return aggregator.finish()

    return handle


def without_repeats(api_key: ApiKey, handler: Handler) -> Handler:
    """The handler of an API, behind its rule for repeated elements."""
    rule = API_TABLE[api_key].repeats
    if rule is None:
        return handler
    field, identity = rule

    def first_of_each(request: Any) -> Generator[None, None, Any]:
        elements = getattr(request, field)
        first: dict[Hashable, Any] = {}
        for number, element in enumerate(elements, 1):
            first.setdefault(identity(element), element)
            if number % LOOK_STEP == 0:
                yield
        return with_field(request, field, tuple(first.values())) if len(first) < len(elements) else request

    def handle(request: Any, context: Any, reply: Any) -> Any:
        if len(getattr(request, field)) > 1:
            request = drain(first_of_each(request))
        return handler(request, context, reply)

    def handle_in_steps(request: Any, context: Any, reply: Any) -> Generator[None, None, Any]:
        request = yield from first_of_each(request)
        answer = handler(request, context, reply)
        return (yield from answer) if isinstance(answer, Generator) else answer

    if API_TABLE[api_key].is_gradual:
        return handle_in_steps
    again: Handler | None = getattr(handler, "repeated", None)
    if again is None:
        return handle

    def handle_again(template: RequestTemplate, context: Any, reply: Any) -> Any:
        request = template.request
        return handle(request, context, reply) if len(getattr(request, field)) > 1 else again(template, context, reply)

    return Repeatable(handle, handle_again)
