"""The context of a request: facts from its header and its connection."""

from collections.abc import Callable, Generator, Hashable
from typing import Any, NamedTuple, Protocol

from kohort.model.principals import Principal


class ClientInformation(NamedTuple):
    """The library of a client, as its ApiVersions names it, and the port of its connection."""

    software_name: str = "unknown"
    software_version: str = "unknown"
    port: int = 0


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

    @property
    def listener(self) -> str:
        """The name of the listener on which the request arrived; clients are told the addresses of the same listener."""

    @property
    def principal(self) -> Principal:
        """The user of the client's connection."""

    @property
    def client(self) -> ClientInformation:
        """The library of the client."""

    @property
    def is_forwarded(self) -> bool:
        """Whether another node has forwarded the request, and checked what is its own to check."""

    def identify(self, software_name: str, software_version: str, /) -> None:
        """Note the library of the client, for the later requests of its connection."""

    def when_disconnected(self, key: Hashable, forget: Callable[[], None], /) -> Callable[[], None]:
        """
        Call `forget` when the client's connection ends. A later call with the same key replaces it; the function that is
        returned takes it back.
        """

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        """Call `forget` if the client disconnects before the request is answered. For requests that may wait for long."""

    def throttle(self, throttle_ms: int, /) -> None:
        """Handle no further request of the client's connection for so many milliseconds, because of a quota."""

    def go_on(self, steps: Generator[Any, None, Any], reply: Callable[[Any], None], /) -> None:
        """
        Take the steps of a long work for the request in later turns, in the order of the calls, and `reply` what it returns.

        The work goes on if the client disconnects. A step may yield a function `wait(resume)`: the next step is taken when
        `resume` was called. The work calls `reply` itself, later, if it returns None.
        """
