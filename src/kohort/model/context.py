"""The context of a request: facts from its header and its connection."""

from collections.abc import Callable
from typing import Protocol


class RequestContext(Protocol):
    """The client and the version of a request, as its handler sees them."""

    @property
    def api_version(self) -> int:
        """The API version of the request; a few rules depend on it."""

    @property
    def client_id(self) -> str:
        """The client id of the request header; "" if it is null."""

    @property
    def client_host(self) -> str:
        """The client's address in Java's form, "/127.0.0.1"; group metadata has it in this form."""

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        """Call `forget` if the client disconnects before the request is answered. For requests that may wait for long."""
