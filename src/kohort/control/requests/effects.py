"""The effects of faults on a request before its handler, and on the answer of the handler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from kohort.broker.apis.request_rules import with_field
from kohort.broker.ports import NoResponse
from kohort.control.requests.answers import answer_of, reads
from kohort.control.requests.faults import Fault
from kohort.control.requests.filters import Call
from kohort.server.connections.in_flight import InFlightRequest
from kohort.server.requests.places import OF_ELEMENTS, answer_place_of, place_of
from kohort.server.requests.placing import WHOLE, Selected, has_place, merged, overwritten, refused, split
from kohort.wire.apis import ApiKey

_CLOSE: Final = NoResponse.CLOSE_CONNECTION
SLOW_STEP_SECONDS: Final = 0.02
"""Between two pieces of a slow answer."""


class Hit(NamedTuple):
    """
    A request that a fault has hit.

    Attributes:
        selected: what the fault selects of it.
        whole: the request with what it leaves out.
        later: calls a function after some seconds.
        finish: answers the request, after an effect that takes its time.
    """

    fault: Fault
    selected: Selected
    whole: Any
    call: Call
    context: InFlightRequest
    later: Callable[[float, Callable[[], None]], None]
    finish: Callable[[Any], None]


class Before(NamedTuple):
    """
    What happens before the handler.

    Attributes:
        request: for the handler.
        answer: instead of the handler's.
        is_silent: the handler is not called, and nothing is answered.
    """

    request: Any = None
    answer: Any = None
    is_silent: bool = False


def before_effect(hit: Hit) -> Before:
    """The effect of a fault before the handler of a request."""
    fault, call = hit.fault, hit.call
    if fault.is_after:
        return Before(call.request)
    if fault.effect == "disconnect":
        return Before(answer=_CLOSE)
    if fault.effect == "silence":
        return Before(is_silent=True)
    if fault.effect == "answer":
        return Before(answer=answer_of(call.api, fault.spec.answer or {}))
    if fault.effect == "error":
        return _refuse(hit)
    return Before(call.request)


def _refuse(hit: Hit) -> Before:
    """An error instead of the effect. What the request has beside the selected elements takes effect."""
    fault, call = hit.fault, hit.call
    place = place_of(call.api, call.version)
    if call.api is ApiKey.PRODUCE and not call.request.acks:
        # Kafka closes the connection: the client waits for no answer.
        return Before(answer=_CLOSE)
    is_deep = is_deep_error(hit)
    if hit.selected == WHOLE and (not reads(call.api) or (place.code and not is_deep)):
        if not has_place(place, call.request):
            return Before(call.request)
        return Before(answer=refused(place, call.request, int(fault.code), fault.spec.message, is_deep=is_deep))
    if reads(call.api):
        return Before(_at_once(call.api, call.request))
    assert isinstance(hit.selected, dict)
    request, part = split(place, call.request, hit.selected, int(fault.code), fault.spec.message)
    if request is None:
        return Before(answer=part)
    return Before(request)


def _at_once(api: ApiKey, request: Any) -> Any:
    """A read that does not wait for records: an error is answered at once."""
    if api in (ApiKey.FETCH, ApiKey.SHARE_FETCH):
        return with_field(request, "max_wait_ms", 0)
    return request


def is_deep_error(hit: Hit) -> bool:
    """Whether the code of an error belongs to topics and partitions."""
    if hit.fault.spec.place is not None:
        return hit.fault.spec.place == "element"
    return hit.fault.code in OF_ELEMENTS or hit.fault.matcher.names_elements


def after_effect(hit: Hit, response: Any) -> Any:
    """The answer with the effect of a fault; None if nothing is sent, or if the effect answers later."""
    fault, call = hit.fault, hit.call
    match fault.effect:
        case "disconnect":
            return _CLOSE
        case "silence":
            return None
        case _ if isinstance(response, NoResponse):
            return response
        case "error":
            return _with_error(hit, response)
        case "answer":
            return answer_of(call.api, fault.spec.answer or {})
        case "truncate":
            frame = hit.context.route.encode(hit.context.correlation_id, response)
            hit.context.connection.send(frame[: fault.spec.truncate])
            return _CLOSE
        case "slow":
            _send_slowly(hit, response)
            return None
        case "throttle":
            return _throttled(hit, response)
        case "corrupt":
            return corrupted(response)
    return response


def _with_error(hit: Hit, response: Any) -> Any:
    fault, call = hit.fault, hit.call
    if not fault.is_after and not reads(call.api):
        if not isinstance(hit.selected, dict):
            return response
        place = place_of(call.api, call.version)
        _, part = split(place, call.request, hit.selected, int(fault.code), fault.spec.message)
        return merged(place, response, part)
    place = place_of(call.api, call.version)
    if call.api is ApiKey.FETCH and not response.error_code:
        # The answer of a session has changed partitions only, and the one with the error may not be among them.
        return merged(place, response, _refused_part(hit))
    facts = {**call.facts, **{word: getattr(call.request, field) for word, field in place.words}}
    answered, _ = overwritten(
        answer_place_of(call.api, call.version),
        response,
        facts,
        fault.matcher.matches,
        int(fault.code),
        fault.spec.message,
        is_deep=is_deep_error(hit),
    )
    return answered


def _refused_part(hit: Hit) -> Any:
    """The answer to what a fault selects, alone."""
    fault, place = hit.fault, place_of(hit.call.api, hit.call.version)
    code, text = int(fault.code), fault.spec.message
    if isinstance(hit.selected, dict):
        return split(place, hit.whole, hit.selected, code, text)[1]
    return refused(place, hit.whole, code, text, is_deep=True)


def _throttled(hit: Hit, response: Any) -> Any:
    throttle_ms = round((hit.fault.spec.throttle or 0) * 1_000)
    hit.context.throttle(throttle_ms)
    if throttle_ms <= getattr(response, "throttle_time_ms", throttle_ms):
        return response
    return msgspec.structs.replace(response, throttle_time_ms=throttle_ms)


def _send_slowly(hit: Hit, response: Any) -> None:
    """Send the answer in pieces; then the requests behind it go on."""
    rate = hit.fault.spec.slow or 1
    frame = hit.context.route.encode(hit.context.correlation_id, response)
    step_bytes = max(round(rate * SLOW_STEP_SECONDS), 1)
    seconds = step_bytes / rate

    def send(sent: int) -> None:
        connection = hit.context.connection
        if not connection.is_open:
            return
        connection.send(frame[sent : sent + step_bytes])
        sent += step_bytes
        if sent < len(frame):
            hit.later(seconds, lambda: send(sent))
        else:
            hit.finish(NoResponse.NO_OP)

    hit.later(seconds, lambda: send(0))


def corrupted(response: Any) -> Any:
    """A Fetch answer in which a byte of the records of each partition has another value; checksums find it."""
    topics = []
    for topic in response.responses:
        partitions = []
        for partition in topic.partitions:
            records = partition.records
            if records:
                changed = bytearray(b"".join(records) if isinstance(records, (list, tuple)) else records)
                changed[-1] ^= 0xFF
                partition = msgspec.structs.replace(partition, records=bytes(changed))
            partitions.append(partition)
        topics.append(msgspec.structs.replace(topic, partitions=partitions))
    return msgspec.structs.replace(response, responses=topics)
