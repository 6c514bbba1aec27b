"""A request context for handlers that are called directly."""

from collections.abc import Callable, Generator, Hashable
from typing import Any, ClassVar

import msgspec

from kohort.model.context import ClientInformation
from kohort.model.principals import ANONYMOUS, Principal


def _nothing() -> None:
    """There is nothing to take back."""


class FixedContext(msgspec.Struct, frozen=True):
    """A `kohort.model.context.RequestContext` with fixed values."""

    is_forwarded: ClassVar[bool] = False

    api_version: int
    client_id: str = ""
    client_host: str = ""
    listener: str = "PLAINTEXT"
    client: ClientInformation = ClientInformation()
    principal: Principal = ANONYMOUS

    def identify(self, software_name: str, software_version: str, /) -> None:
        """Do nothing: the context is of one request."""

    def when_disconnected(self, _key: Hashable, _forget: Callable[[], None], /) -> Callable[[], None]:
        """Do nothing: this client never disconnects."""
        return _nothing

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        """Do nothing: this client never disconnects."""

    def throttle(self, throttle_ms: int, /) -> None:
        """Do nothing: the caller decides when it asks again."""

    def go_on(self, steps: Generator[Any, None, Any], reply: Callable[[Any], None], /) -> None:
        """Take all steps at once, up to one that waits."""
        take_all(steps, reply)


def take_all(steps: Generator[Any, None, Any], reply: Callable[[Any], None]) -> None:
    """Take the steps of a long work, up to one that waits; its `resume` takes those that follow."""
    while True:
        try:
            wait = next(steps)
        except StopIteration as end:
            if end.value is not None:
                reply(end.value)
            return
        if wait is not None:
            wait(lambda: take_all(steps, reply))
            return
