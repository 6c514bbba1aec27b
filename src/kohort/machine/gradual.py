"""Handlers that work in steps."""

from collections.abc import Callable, Generator
from typing import Any, Final

HANDLER_STEP: Final = 200
"""Cheap elements (a name, a partition) between two yields of a handler."""


class GradualHandler:
    """
    A request handler whose work may take long: it returns a generator, which returns the response, or None for a later reply.

    The generator yields at least every millisecond of work, when its state is consistent: other requests are handled between
    two steps. If the client disconnects, the generator is closed.
    """

    def __init__(self, handler: Callable[[Any, Any, Any], Generator[None, None, Any]]) -> None:
        self._handler = handler

    def __call__(self, request: Any, context: Any, reply: Any, /) -> Generator[None, None, Any]:
        return self._handler(request, context, reply)
