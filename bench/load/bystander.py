"""
A bystander: a client that asks for ApiVersions every two milliseconds, in a process of its own: `bystander.py PORT`.

Its longest wait shows how long the server's event loop is held by the requests of others. Until its input ends it measures, and
then prints the longest wait in seconds.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from bench.load.client import open_socket, send
from kohort.wire import messages
from kohort.wire.apis import ApiKey

INTERVAL_SECONDS: Final = 0.002
WARM_UP: Final = 100
"""Requests that are not measured."""


@dataclass(slots=True)
class Wait:
    """The longest wait of a bystander; 0 until its process has ended."""

    seconds: float = 0.0


@contextmanager
def bystander(port: int) -> Iterator[Wait]:
    """Run a bystander; its longest wait is known behind the `with` block."""
    command = (sys.executable, "-m", "bench.load.bystander", str(port))
    wait = Wait()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "it has a pipe"
        process.stdout.readline()
        try:
            yield wait
        finally:
            printed, _ = process.communicate()
    wait.seconds = float(printed)


def _wait_for_end_of_input(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


def main() -> None:
    is_over = threading.Event()
    threading.Thread(target=_wait_for_end_of_input, args=(is_over,), daemon=True).start()
    longest = 0.0
    with open_socket(int(sys.argv[1])) as connection:
        for _ in range(WARM_UP):
            send(connection, ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest())
        print("ready", flush=True)
        while not is_over.wait(INTERVAL_SECONDS):
            begun = time.perf_counter()
            send(connection, ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest())
            longest = max(longest, time.perf_counter() - begun)
    print(longest)


if __name__ == "__main__":
    main()
