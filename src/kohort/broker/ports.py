"""
What the broker's handlers are given and what they give back, said once. The server provides it; tests use virtual time.

A handler is `handler(request, context, reply) -> response | Outcome | None`: the response when it can be given at once,
None when `reply(response)` is called later, exactly once, and an `Outcome` when the client is not to be answered. Handlers
raise nothing for bad input: they answer the protocol's error.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeAlias

from kohort.machine.shard import Reply
from kohort.model.context import RequestContext

Cancel: TypeAlias = Callable[[], None]
"""Forget the call; without effect when it was made already."""

CallLater: TypeAlias = Callable[[int, Callable[[], None]], Cancel]
"""`call_later(delay_ms, function)`: call it once in `delay_ms`, on the thread that owns the node."""


class Outcome(Enum):
    """What happens to a request that gets no response."""

    NO_RESPONSE = "no response"
    CLOSE_CONNECTION = "close the connection"


Context: TypeAlias = RequestContext
"""Who asks, and how."""

Handler: TypeAlias = Callable[[Any, Context, Reply[Any]], Any]
