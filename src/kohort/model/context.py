"""What a handler is told of a request beside its body."""

from collections.abc import Callable
from typing import Protocol


class RequestContext(Protocol):
    """Who asks, and how."""

    @property
    def api_version(self) -> int:
        """The version that the client speaks; a few rules depend on it."""

    @property
    def client_id(self) -> str:
        """From the request header; "" when there was none."""

    @property
    def client_host(self) -> str:
        """In Java's form, "/127.0.0.1": it is written into group metadata."""

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        """Call `forget` if the client goes away before this request is answered; for requests that wait for others."""
