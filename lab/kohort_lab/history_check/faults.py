"""The faults of a run: what happens to the broker, to its disk and to the clients."""

import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from kohort_lab.bounded import filled
from kohort_lab.restarted import RestartedProcess

FULL_SECONDS: Final = 3.0
"""How long a full disk stays full."""
FULL_DISK_ENTRIES: Final = (
    r"log\.offline",
    r"store\.offline",
    r"store\.closed_uncleanly",
    r"catalog\.",
    r"log\.maintenance",
)
"""The log entries of level ERROR that a full disk explains."""


class Broker(Protocol):
    """A broker of our own; `ServedKohort` is one."""

    data_dir: Path
    expected: list[str]

    def kill(self) -> None: ...

    def stop(self) -> None: ...

    def start(self) -> object: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Faults:
    """
    Args:
        broker: None leaves the broker alone.
        is_bounded: whether the broker's data directory is a small file system of its own, which a fault may fill.
        pause_seconds: the longest time that a process is paused or down.
    """

    def __init__(
        self,
        rng: random.Random,
        clients: Sequence[RestartedProcess],
        broker: Broker | None,
        *,
        is_bounded: bool,
        pause_seconds: float,
    ) -> None:
        self.counts: dict[str, int] = {}
        self._rng = rng
        self._clients = clients
        self._pause_seconds = pause_seconds
        self._choices: list[Callable[[], None]] = [self.kill_client, self.pause_client]
        if broker is not None:
            self._broker = broker
            self._choices += [self.kill_broker, self.pause_broker, self.restart_broker, self.kill_broker_and_client]
            if is_bounded:
                self._broker.expected += FULL_DISK_ENTRIES
                self._choices.append(self.fill_disk)

    def cause(self) -> str:
        """Cause one fault and wait until it is over; returns its name. Each kind comes before any comes twice."""
        rarest = min(self.counts.get(choice.__name__, 0) for choice in self._choices)
        choices = [choice for choice in self._choices if self.counts.get(choice.__name__, 0) == rarest]
        choice = self._rng.choice(choices)
        choice()
        self.counts[choice.__name__] = self.counts.get(choice.__name__, 0) + 1
        return choice.__name__

    def _wait(self) -> None:
        time.sleep(self._rng.uniform(0, self._pause_seconds))

    def kill_client(self) -> None:
        client = self._rng.choice(self._clients)
        client.kill()
        self._wait()
        client.start()

    def pause_client(self) -> None:
        """A member that is paused for longer than its session must not commit afterwards."""
        client = self._rng.choice(self._clients)
        client.pause()
        self._wait()
        client.resume()

    def kill_broker(self) -> None:
        self._broker.kill()
        self._wait()
        self._broker.start()

    def kill_broker_and_client(self) -> None:
        client = self._rng.choice(self._clients)
        client.kill()
        self._broker.kill()
        self._broker.start()
        client.start()

    def pause_broker(self) -> None:
        self._broker.pause()
        self._wait()
        self._broker.resume()

    def restart_broker(self) -> None:
        self._broker.stop()
        self._broker.start()

    def fill_disk(self) -> None:
        """Fill the file system, and make room again. Partitions that have failed are offline until the next start."""
        with filled(self._broker.data_dir):
            time.sleep(FULL_SECONDS)
        self._broker.kill()
        self._broker.start()
