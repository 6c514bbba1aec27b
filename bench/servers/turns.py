"""
Kohort with a look at each turn of its event loop: `turns.py FILE serve ...`, the arguments of `kohort` behind the file.

On SIGUSR1 it writes into FILE how much of the processor the longest turn since the last signal has taken, in milliseconds, and
where its thread was in it, and begins anew. The loop never rests.
"""

import asyncio
import gc
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Final

from kohort.cli.main import main
from kohort.server import node

LOOK_SECONDS: Final = 0.001
LONG_SECONDS: Final = 0.002
"""Turns that are looked into."""
_FRAMES: Final = 12


class Turns:
    """The turns of one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._turn, self._began = 0, time.thread_time()
        self._longest = self._collecting = 0.0
        self._seen: Counter[str] = Counter()
        """Where the thread was in the turn that is under way."""
        self._where: list[tuple[str, int]] = []
        """The same of the longest turn."""
        self._clock = time.pthread_getcpuclockid(self._thread_id)
        self._loop.add_signal_handler(signal.SIGUSR1, self._write)
        self._loop.call_soon(self._tick)
        gc.callbacks.append(self._on_collection)
        threading.Thread(target=self._look, daemon=True).start()

    def _tick(self) -> None:
        took = time.thread_time() - self._began
        if took > self._longest:
            self._longest, self._where = took, self._seen.most_common(3)
        self._seen.clear()
        self._turn += 1
        self._loop.call_soon(self._tick)
        self._began = time.thread_time()

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        """Nothing else runs during a collection, so nobody looks."""
        if threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            took_ms = 1_000 * (time.thread_time() - self._collecting)
            self._seen[f"collection of generation {info['generation']}, {took_ms:.1f} ms"] += 1

    def _look(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            turn = self._turn
            if time.clock_gettime(self._clock) - self._began > LONG_SECONDS:
                frame = sys._current_frames().get(self._thread_id)
                if turn == self._turn:
                    self._seen[_told(frame)] += 1

    def _write(self) -> None:
        where = "; ".join(f"{count}x {told}" for told, count in self._where)
        self._path.write_text(f"{1_000 * self._longest:.2f}\n{where}\n")
        self._longest, self._where = 0.0, []


def _told(frame: FrameType | None) -> str:
    stack = traceback.extract_stack(frame)[-_FRAMES:]
    return " > ".join(f"{Path(it.filename).stem}.{it.name}:{it.lineno}" for it in stack)


def watched(configure: Callable[[], None], path: Path) -> Callable[[], None]:
    """`configure`, which is called when the node has started, and then watches the turns."""

    def run() -> None:
        configure()
        Turns(path)

    return run


if __name__ == "__main__":
    found = Path(sys.argv[1])
    node.configure_garbage_collector = watched(node.configure_garbage_collector, found)
    del sys.argv[1]
    main()
