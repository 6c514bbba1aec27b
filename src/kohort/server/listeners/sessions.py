"""
The handler of SaslHandshake on connections whose session ends: it begins a re-authentication.

Source: KIP-368; Kafka KafkaChannel.maybeBeginServerReauthentication.
"""

from collections.abc import Callable
from typing import Any

from kohort.broker.ports import Context, Handler, NoResponse
from kohort.server.connections.in_flight import InFlightRequest


def reauthentication(handler: Handler) -> Handler:
    """Wrap the handler, which answers a handshake that nobody asked for."""

    def handle(request: Any, context: Context, reply: Callable[[Any], None]) -> Any:
        assert isinstance(context, InFlightRequest)
        begin_again = context.connection.begin_again
        if begin_again is not None and begin_again():
            return NoResponse.NO_OP
        return handler(request, context, reply)

    return handle
