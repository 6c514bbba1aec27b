"""A node on an event loop in a thread of this process: after the first one, a start takes some milliseconds."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from kohort.model.errors import KohortError
from kohort.testing.process import START_TIMEOUT_S, STOP_TIMEOUT_S

if TYPE_CHECKING:
    from kohort.cli.serve_control import ControlOptions
    from kohort.server.settings import Settings


def _event_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop
    except ImportError:  # uvloop does not exist for every platform
        return asyncio.new_event_loop
    found: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
    return found


class NodeThread:
    """
    A node that serves from `start` to `stop`. The garbage collector and the signals of the process stay as they are.

    Args:
        arguments: options of `kohort serve`.
    """

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._ready: Future[dict[str, Any]] = Future()
        self._stop: Callable[[], object] = lambda: None
        self._failures: list[str] = []
        self._thread = threading.Thread(target=self._run, name="kohort-broker", daemon=True)

    def start(self) -> dict[str, Any]:
        """
        Start and return what `kohort serve --json` prints.

        Raises:
            KohortError: the options are not valid, or the data directory or the port cannot be used.
        """
        self._thread.start()
        return self._ready.result(START_TIMEOUT_S)

    def stop(self) -> None:
        """
        Stop in order.

        Raises:
            KohortError: the node has failed, or does not stop.
        """
        self._stop()
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise KohortError(f"the broker has not stopped in {STOP_TIMEOUT_S:.0f} seconds")
        if self._failures:
            raise KohortError(self._failures[0])

    def _run(self) -> None:
        from kohort.cli.serve import parser
        from kohort.cli.serve_control import control_of
        from kohort.cli.serve_settings import node_settings

        try:
            with ExitStack() as stack:
                options = parser().parse_args(self._arguments)
                settings = stack.enter_context(node_settings(options, {}))
                runner = stack.enter_context(asyncio.Runner(loop_factory=_event_loop()))
                runner.run(self._serve(settings, control_of(options, {})))
        except SystemExit:  # of argparse, which has printed why
            self._ready.set_exception(KohortError(f"there are no such options: {' '.join(self._arguments)}"))
        except Exception as error:  # noqa: BLE001 -- it is raised where the broker is started or stopped
            if self._ready.done():
                self._failures.append(f"the broker has failed: {error!r}")
            else:
                self._ready.set_exception(error)

    async def _serve(self, settings: "Settings", control: "ControlOptions | None") -> None:
        from kohort.cli.serve_ready import ready_values
        from kohort.server.node import Node

        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()
        node = Node(settings, loop, on_failure=self._failures.append)
        server = None
        try:
            await node.start()
            if control is not None:
                server = await control.start(node, settings.host)
            self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
            self._ready.set_result(ready_values(node, settings, None if server is None else server.port))
            await stopping.wait()
        finally:
            if server is not None:
                await server.close()
            await node.stop()
