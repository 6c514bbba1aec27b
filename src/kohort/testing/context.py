"""A request context for handlers that are called directly."""

from collections.abc import Callable

import msgspec


class FixedContext(msgspec.Struct, frozen=True):
    """A `kohort.model.context.RequestContext` with fixed values."""

    api_version: int
    client_id: str = ""
    client_host: str = ""

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        """Do nothing: this client never disconnects."""
