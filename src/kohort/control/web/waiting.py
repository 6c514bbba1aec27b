"""Long polls: wait until something is true, told by those who change it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kohort.control.web.problems import too_many
from kohort.model.limits import CONTROL_WAITS_MAX

_POLL_SECONDS: Final = 0.01


class Polls:
    """Looks at a state again and again: of groups, transactions and topics, which tell nobody."""

    def __init__(self) -> None:
        self._count = 0

    async def until(self, is_true: Callable[[], Awaitable[bool]], seconds: float) -> bool:
        """Whether it became true in time."""
        if self._count >= CONTROL_WAITS_MAX:
            raise too_many("waits", CONTROL_WAITS_MAX)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        self._count += 1
        try:
            while not await is_true():
                if loop.time() >= deadline:
                    return False
                await asyncio.sleep(_POLL_SECONDS)
            return True
        finally:
            self._count -= 1


class Changes:
    """Wakes those who wait whenever something has changed. Without them it costs nothing."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def tell(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    async def until(self, is_true: Callable[[], bool], seconds: float) -> bool:
        """Whether it became true in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not is_true():
            left = deadline - loop.time()
            if left <= 0:
                return False
            if len(self._waiting) >= CONTROL_WAITS_MAX:
                raise too_many("waits", CONTROL_WAITS_MAX)
            future = loop.create_future()
            self._waiting.add(future)
            try:
                async with asyncio.timeout(left):
                    await future
            except TimeoutError:
                pass
            finally:
                self._waiting.discard(future)
        return True
