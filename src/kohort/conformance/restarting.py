"""One restart of the broker for many stories: it happens when each of them has come to the step that wants it, or has ended."""

import asyncio

from kohort.conformance.scenario_run import Restart


class CommonRestart:
    """
    Stories call `join` where the broker is to be restarted, and `leave` when they are over.

    A story whose `join` failed fails with the same error.
    """

    def __init__(self, restart: Restart, stories: int) -> None:
        """
        Args:
            stories: how many there are.
        """
        self._restart = restart
        self._under_way = stories
        self._waiting: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    async def join(self) -> None:
        """Returns when the broker is there again."""
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
        except Exception as exc:  # noqa: BLE001  # it belongs to the stories
            for each in waiting:
                if not each.done():
                    each.set_exception(exc)
            return
        for each in waiting:
            if not each.done():
                each.set_result(None)
