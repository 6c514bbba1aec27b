"""
The longest wait for the event loop of a broker, in processor time of the loop's thread.

`python -m kohort_lab.fuzz.turns FILE serve ...` is `kohort serve ...`, with a thread that posts a function to the event
loop again and again. From the posting to the call, the loop's thread uses processor time for whatever is before it. This is
what a request waits, without the time that other processes take from the machine. The most so far, in seconds, is written to
FILE.
"""

import asyncio
import sys
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Final

from kohort.cli.main import main
from kohort.server import node as served
from kohort.server.node import Node
from kohort.wire.native import kio_entity_reader

INTERVAL_S: Final = 0.002
_ANSWER_S: Final = 120.0


class LongestTurn:
    """
    Measures the loop of the thread that creates it.

    Attributes:
        seconds: the most so far.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, file: Path) -> None:
        self.seconds = 0.0
        self._loop = loop
        self._file = file
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._was_called = threading.Event()
        self._posted = 0.0

    def run(self) -> None:
        """Measure until the loop is closed; on a thread of its own."""
        while True:
            self._was_called.clear()
            self._posted = time.clock_gettime(self._clock)
            try:
                self._loop.call_soon_threadsafe(self._called)
            except RuntimeError:
                return
            self._was_called.wait(_ANSWER_S)
            time.sleep(INTERVAL_S)

    def _called(self) -> None:
        seconds = time.thread_time() - self._posted
        if seconds > self.seconds:
            self.seconds = seconds
            self._file.write_text(f"{seconds:.6f}\n")
        self._was_called.set()


class MeasuredNode(Node):
    """
    A node whose loop is measured from its start on. It has imported all its rooms: without byte code on the disk, the first
    request of a group would hold the loop for 100 ms.
    """

    file = Path()

    async def start(self) -> tuple[str, int]:
        address = await super().start()
        for apis in self.broker.apis.values():
            _ = dict(apis.handlers)
        import_module("kohort.wire.native_records")
        import_module("kohort.storage.memory.cleaner")
        kio_entity_reader()
        longest = LongestTurn(asyncio.get_running_loop(), self.file)
        threading.Thread(target=longest.run, name="kohort-turns", daemon=True).start()
        return address


def read_longest(file: Path) -> float | None:
    """The text that was written to the file; None if nothing was."""
    return float(file.read_text()) if file.exists() else None


if __name__ == "__main__":
    MeasuredNode.file = Path(sys.argv.pop(1))
    served.Node = MeasuredNode  # type: ignore[misc]
    main()
