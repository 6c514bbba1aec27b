"""Parts of the demo: broker, members, application, producer, output, and a ledger of acknowledged commits and records."""

import json
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from rich.console import Console

from kohort.testing import free_ports

TOPICS: Final = {"orders": 6, "payments": 3}
RECEIPTS: Final = "receipts"
GROUP: Final = "shop"
WAIT_SECONDS_MAX: Final = 120.0
KOHORT: Final = str(Path(sys.executable).with_name("kohort"))

Position = tuple[str, int]
"""Topic and partition."""


class ClaimError(Exception):
    """A claim of the demo does not hold."""


class Narrator:
    """Output of the demo, with the seconds since its start."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.begun = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def step(self, text: str) -> None:
        self.console.print(f"\n[dim]{self.seconds:5.1f} s[/]  [bold]{text}[/]", highlight=False)

    def fact(self, text: str) -> None:
        self.console.print(f"[dim]{self.seconds:5.1f} s[/]    {text}", highlight=False)

    def output(self, text: str) -> None:
        """Print the output of a command."""
        for line in text.rstrip().splitlines():
            self.console.print(f"           {line}", style="dim", markup=False, highlight=False, soft_wrap=True)

    def claim(self, holds: object, text: str, otherwise: str) -> None:
        """
        Raises:
            ClaimError: the claim does not hold.
        """
        if not holds:
            raise ClaimError(otherwise)
        self.held(text)

    def held(self, text: str) -> None:
        self.fact(f"[green]✓[/] {text}")

    def until(self, condition: Callable[[], bool], what: str, seconds_max: float = WAIT_SECONDS_MAX) -> float:
        """Wait for a condition and return the seconds it took."""
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > seconds_max:
                raise ClaimError(f"waited {seconds_max:.0f} seconds in vain until {what}")
            time.sleep(0.05)
        return time.monotonic() - begun


class Broker:
    """`kohort serve` with a fixed directory and port."""

    def __init__(self, root: Path) -> None:
        self.data_dir = root / "data"
        self._log = root / "broker.log"
        (self.port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start the broker, wait for its ready line, and return the seconds it took."""
        begun = time.monotonic()
        command = [KOHORT, "serve", "--host", "127.0.0.1", "--port", str(self.port), "--data-dir", str(self.data_dir)]
        # Members of share groups cannot choose timeouts; a group can, from here on.
        command += [
            "--set",
            "group.share.min.session.timeout.ms=6000",
            "--set",
            "group.share.min.heartbeat.interval.ms=500",
        ]
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline().startswith("kohort ready"):
            raise ClaimError(f"the broker did not start: {self._log.read_text()[-1000:]}")
        return time.monotonic() - begun

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Stop the broker with SIGTERM and return its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(WAIT_SECONDS_MAX)

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()


class Ledger:
    """Everything that the broker has acknowledged, and so must not lose."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._commits: dict[Position, int] = {}
        self._records: dict[tuple[str, int, int], bytes] = {}
        self.commits_of: Counter[int] = Counter()
        """Acknowledged commit requests by process id of the member."""

    def committed(self, process_id: int, offsets: list[tuple[str, int, int]]) -> None:
        with self._lock:
            self.commits_of[process_id] += 1
            for topic, partition, offset in offsets:
                self._commits[topic, partition] = max(offset, self._commits.get((topic, partition), 0))

    def produced(self, error: Any, message: Any) -> None:
        """Delivery report of confluent-kafka."""
        if error is None:
            with self._lock:
                self._records[message.topic(), message.partition(), message.offset()] = message.value()

    def commits(self) -> dict[Position, int]:
        """Return the highest acknowledged offset of each partition."""
        with self._lock:
            return dict(self._commits)

    def records(self) -> dict[tuple[str, int, int], bytes]:
        """Return acknowledged values by topic, partition and offset."""
        with self._lock:
            return dict(self._records)


class Reporter(ABC):
    """
    A process that reports each event as a line of JSON.

    Args:
        program: a file beside this one.
        log: gets what the process writes to standard error.
    """

    def __init__(self, program: str, log: Path, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__).with_name(program)), *arguments]
        with log.open("a") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
            )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            # A process that was killed may leave half a line.
            if line.endswith("}\n"):
                self._take(json.loads(line))

    @abstractmethod
    def _take(self, report: dict[str, Any]) -> None:
        """Note an event; on another thread."""

    def die(self) -> None:
        """Send SIGKILL: a member does not leave its group."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.die()


class Member(Reporter):
    """A process of demo_members.py and its reports."""

    def __init__(self, client: str, broker: Broker, ledger: Ledger, root: Path) -> None:
        self.client = client
        self._ledger = ledger
        super().__init__("demo_members.py", root / f"{client}.log", client, broker.bootstrap, GROUP, *TOPICS)

    def _take(self, report: dict[str, Any]) -> None:
        if report["event"] == "committed":
            self._ledger.committed(self.process.pid, report["offsets"])

    @property
    def commits(self) -> int:
        return self._ledger.commits_of[self.process.pid]

    def leave(self) -> None:
        """Send SIGTERM: the member leaves the group. Returns at once."""
        self.process.terminate()


class Application(Reporter):
    """
    A process of demo_application.py and its reports.

    Attributes:
        transactions, records: committed so far, as reported.
        is_holding: it is in the middle of a transaction, and waits.
        is_done: it has reached the end of its input.
    """

    def __init__(self, broker: Broker, root: Path, hold: int) -> None:
        self.transactions = 0
        self.records = 0
        self.is_holding = False
        self.is_done = False
        arguments = (broker.bootstrap, "payments", RECEIPTS, str(hold))
        super().__init__("demo_application.py", root / "application.log", *arguments)

    def _take(self, report: dict[str, Any]) -> None:
        if report["event"] == "committed":
            self.transactions += 1
            self.records += report["records"]
        self.is_holding = report["event"] == "holding"
        self.is_done = report["event"] == "done"


class Orders:
    """A continuous producer: confluent-kafka, acks=all, idempotent."""

    def __init__(self, broker: Broker, ledger: Ledger) -> None:
        self._ledger = ledger
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._number = 0
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._produce_continuously, daemon=True)

    def produce(self, count: int) -> None:
        """Produce records and wait until all are acknowledged."""
        for _ in range(count):
            self._one()
        if self._producer.flush(WAIT_SECONDS_MAX):
            raise ClaimError(f"the broker did not acknowledge all of {count} records in {WAIT_SECONDS_MAX:.0f} seconds")

    def start(self) -> None:
        self._thread.start()

    def _produce_continuously(self) -> None:
        while not self._is_stopping.wait(0.01):
            for _ in range(5):
                self._one()

    def _one(self) -> None:
        self._number += 1
        topic = "payments" if self._number % 3 == 0 else "orders"
        value = json.dumps({"number": self._number, "amount": self._number % 97})
        self._producer.produce(
            topic, key=f"customer-{self._number % 41}", value=value, on_delivery=self._ledger.produced
        )
        self._producer.poll(0)

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self.produce(0)
