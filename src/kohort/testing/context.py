"""A request's context for handlers that are called directly."""

from collections.abc import Callable

import msgspec


class FixedContext(msgspec.Struct, frozen=True):
    """`kohort.model.context.RequestContext` of what the test says."""

    api_version: int
    client_id: str = ""
    client_host: str = ""

    def when_abandoned(self, forget: Callable[[], None], /) -> None:
        """This client never goes away."""
