"""One restart of the broker for many scenarios, when each of them has reached its restart step or has ended."""

import asyncio

from kohort_lab.conformance.scenarios.scenario_run import Restart


class CommonRestart:
    """
    A scenario calls `join` at its restart step, and `leave` at its end.

    If the restart fails, every `join` raises its error.
    """

    def __init__(self, restart: Restart, scenarios: int) -> None:
        """
        Args:
            scenarios: their number.
        """
        self._restart = restart
        self._under_way = scenarios
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Wait for the other scenarios, and for the restart."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._restart_if_all_wait()
        await done

    def leave(self) -> None:
        self._under_way -= 1
        self._restart_if_all_wait()

    def _restart_if_all_wait(self) -> None:
        if self._waiting and len(self._waiting) == self._under_way:
            waiting, self._waiting = self._waiting, []
            self._task = asyncio.create_task(self._restart_for(waiting))

    async def _restart_for(self, waiting: list[asyncio.Future[None]]) -> None:
        try:
            await self._restart()
        except Exception as exc:  # noqa: BLE001  # every scenario that waits raises it
            for each in waiting:
                if not each.done():
                    each.set_exception(exc)
            return
        for each in waiting:
            if not each.done():
                each.set_result(None)
