"""
Handlers that throttle clients whose requests exceed a quota: by produced bytes, and by the time that requests take.

Without quotas no handler is wrapped, and requests cost nothing. The rows of `kohort.broker.apis.api_table` say what counts.

Source: KIP-124, KIP-219; Kafka RequestHandlerHelper, KafkaApis.handleProduceRequest.
"""

from collections.abc import Callable, Generator
from time import perf_counter_ns
from typing import Any

import msgspec

from kohort.broker.apis.api_table import API_TABLE
from kohort.broker.ports import Context, Handler, NoResponse
from kohort.broker.quotas.client_quotas import ClientQuotas
from kohort.server.requests.dispatch import Throttle
from kohort.wire.apis import ApiKey


def throttle_for(quotas: ClientQuotas, api_key: ApiKey) -> Throttle | None:
    """The wrapper of an API's handler under the present quotas; None if it is not needed."""
    row = API_TABLE[api_key]
    if (quotas.limits_requests and row.is_throttled) or (quotas.limits_produce and row.quota_bytes):
        return lambda handler: _Throttled(quotas, handler, row.quota_bytes)
    return None


class _Throttled:
    """
    A handler with quotas.

    Args:
        size_of: the bytes of a request that count; None if none do.
    """

    def __init__(self, quotas: ClientQuotas, handler: Handler, size_of: Callable[[Any], int] | None) -> None:
        self._quotas = quotas
        self._handler = handler
        self._size_of = size_of

    def __call__(self, request: Any, context: Context, reply: Callable[[Any], None]) -> Any:
        work = _Work(self._quotas, context, 0 if self._size_of is None else self._size_of(request))
        begin_ns = perf_counter_ns()
        response = self._handler(request, context, lambda late: reply(work.throttle(late)))
        work.took_ns += perf_counter_ns() - begin_ns
        if response is None:
            return None
        if isinstance(response, Generator):
            return work.steps(response)
        return work.throttle(response)


class _Work:
    """The cost of one request."""

    __slots__ = ("_context", "_quotas", "_size_bytes", "took_ns")

    def __init__(self, quotas: ClientQuotas, context: Context, size_bytes: int) -> None:
        self._quotas = quotas
        self._context = context
        self._size_bytes = size_bytes
        self.took_ns = 0

    def steps(self, steps: Generator[Any, None, Any]) -> Generator[Any, None, Any]:
        """Take the steps of a handler and measure them."""
        while True:
            begin_ns = perf_counter_ns()
            try:
                wait = next(steps)
            except StopIteration as end:
                self.took_ns += perf_counter_ns() - begin_ns
                return None if end.value is None else self.throttle(end.value)
            self.took_ns += perf_counter_ns() - begin_ns
            yield wait

    def throttle(self, response: Any) -> Any:
        """Record the use, throttle the connection if a quota is exceeded, and put the time into the response."""
        if response is NoResponse.CLOSE_CONNECTION:
            return response
        quotas, context = self._quotas, self._context
        throttle_ms = quotas.record_produce(context.client_id, self._size_bytes) if self._size_bytes else 0
        if response is not NoResponse.NO_OP:
            throttle_ms = max(throttle_ms, quotas.record_request(context.client_id, self.took_ns))
        if not throttle_ms:
            return response
        context.throttle(throttle_ms)
        if throttle_ms <= getattr(response, "throttle_time_ms", throttle_ms):
            return response
        return msgspec.structs.replace(response, throttle_time_ms=throttle_ms)
