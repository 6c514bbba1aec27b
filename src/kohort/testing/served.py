"""`kohort serve` as a child process on free ports. Its exit code and its log are checked when it ends."""

import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kohort.server.control import send_command
from kohort.testing.ports import free_port_range
from kohort.testing.process import KOHORT, START_TIMEOUT_S, end, first_line, spawn
from kohort.wire.apis import DEFAULT_RELEASE

_ENTRY = re.compile(r"\d{4}-\d\d-\d\dT\S+ (?P<level>[A-Z]+) ")
_LEVELS = ("ERROR", "CRITICAL")
_SIGNS = ("Traceback (most recent call last)", "Exception ignored in")
_SHOWN_CHARACTERS = 4_000


class ServerFailedError(AssertionError):
    """The server ended with an exit code other than 0, or logged an error or a traceback that the test does not expect."""


class ServedKohort:
    """
    One broker, or several virtual brokers, on one data directory or store. As a context manager, it starts on entry and stops
    on exit.

    Every end of the process, by `stop` or `kill`, checks the log entries written since the last check: an entry of level ERROR
    or with a traceback raises `ServerFailedError`, unless it matches a pattern of `expected`.

    Attributes:
        data_dir: the broker's data.
        log: the file with its log, of all starts.
        certificates: the directory of the certificates of `--tls`, while the process runs.
        metrics_port: that of `--metrics-port`, while the process runs.
        port: the same for every start; the port of the first broker.
        ports: of all brokers, by broker id.
        expected: regular expressions; a log entry that one of them matches may be an error. Tests may append to the list.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        command: Sequence[str] = KOHORT,
        flush: str = "commit",
        expected: Sequence[str] = (),
        features: Mapping[str, int] | None = None,
        brokers: int = 1,
        racks: Sequence[str] = (),
        options: Sequence[str] = (),
        kafka: str = DEFAULT_RELEASE,
        store: str | None = None,
    ) -> None:
        """
        Args:
            directory: parent of the data directory `data` and of the log; created if absent.
            properties: broker configurations.
            command: the command line of `kohort`.
            flush: when a write is acknowledged: `commit`, after it is flushed; `os`, when the operating system has it.
            expected: patterns of log entries that are no failure.
            features: finalised levels of features by name; the newest levels by default.
            brokers: how many virtual brokers the process presents; `stop_broker` and `start_broker` stop and start one of them.
            racks: of the brokers.
            options: of `kohort serve`, such as `--tls`.
            kafka: the release of Apache Kafka that the brokers are like, such as 4.2.
            store: the address of a database with a store, in place of the data directory.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self.data_dir = directory / "data"
        self.log = directory / "kohort.log"
        self.expected = list(expected)
        ports = free_port_range(brokers)
        self.port = ports[0]
        self.ports = dict(enumerate(ports, 1))
        self._control: Path | None = None
        self.certificates: Path | None = None
        self.metrics_port: int | None = None
        self._command = [
            *command,
            "serve",
            "--flush",
            flush,
            *(("--data-dir", str(self.data_dir)) if store is None else ("--store", store)),
            "--port",
            str(self.port),
        ]
        self._command += options
        for key, value in (properties or {}).items():
            self._command += ["--set", f"{key}={value}"]
        for name, level in (features or {}).items():
            self._command += ["--feature", f"{name}={level}"]
        if brokers > 1:
            self._command += ["--brokers", str(brokers)]
        if kafka != DEFAULT_RELEASE:
            self._command += ["--kafka", kafka]
        if racks:
            self._command += ["--racks", ",".join(racks)]
        self._process: subprocess.Popen[bytes] | None = None
        self._checked_bytes = 0

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, separated by commas."""
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def stop_broker(self, node_id: int) -> None:
        """
        Stop one of several brokers: its leaders and coordinators move to others, its connections close.

        Raises:
            ConfigError: there is no such broker, or it is stopped.
        """
        self._send("stop", node_id)

    def start_broker(self, node_id: int) -> None:
        """
        Start a broker that was stopped, at the same port. Leaders stay where they are.

        Raises:
            ConfigError: there is no such broker, or it runs.
        """
        self._send("start", node_id)

    def _send(self, command: str, node_id: int) -> None:
        assert self._control is not None, "the process runs and presents several brokers"
        send_command(self._control, command, node_id, START_TIMEOUT_S)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def pause(self) -> None:
        """Stop the process by SIGSTOP until `resume`: clients and disks go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @property
    def peak_bytes(self) -> int | None:
        """The peak of the resident memory of the running broker; None where the system does not tell."""
        return self._memory("VmHWM")

    @property
    def resident_bytes(self) -> int | None:
        """The resident memory of the running broker; None where the system does not tell."""
        return self._memory("VmRSS")

    @property
    def page_faults(self) -> int:
        """How often the running broker took a page of memory from the system so far. Linux only."""
        assert self._process is not None, "the broker runs"
        return int(Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[7])

    def _memory(self, field: str) -> int | None:
        if self._process is None:
            return None
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        return int(found[1]) << 10 if found else None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is None:
            self.stop()
            return
        try:
            self.kill()
        except ServerFailedError as failure:
            exc.add_note(str(failure))

    def start(self) -> Self:
        """
        Start the broker and wait for its ready line.

        Raises:
            RuntimeError: the broker does not become ready; the message contains its log.
        """
        self.spawn()
        assert self._process is not None
        line = first_line(self._process)
        if not line.startswith("kohort ready "):
            self._end(is_forced=True)
            raise RuntimeError(f"kohort serve did not become ready:\n{line}{self.log_tail()}")
        certificates = re.search(r" certificates=(\S+)", line)
        self.certificates = Path(certificates[1]) if certificates else None
        metrics = re.search(r" metrics_port=(\d+)", line)
        self.metrics_port = int(metrics[1]) if metrics else None
        control = re.search(r" control=(.+)$", line.strip())
        self._control = Path(control[1]) if control else None
        return self

    def spawn(self) -> None:
        """Start the process and return at once."""
        assert self._process is None, "the broker runs already"
        with self.log.open("ab") as log:
            self._process = spawn(self._command, log)

    def lives_for(self, seconds: float) -> bool:
        """Whether the process still runs after the given time."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def stop(self) -> None:
        """
        Stop the broker by SIGTERM. A broker that was not started, or was stopped, stays so.

        Raises:
            ServerFailedError: exit code other than 0, or an unexpected entry in the log.
            subprocess.TimeoutExpired: the broker did not end within `STOP_TIMEOUT_S` and was killed.
        """
        code = self._end(is_forced=False)
        if code not in (None, 0):
            raise ServerFailedError(f"kohort serve ended with exit code {code}:\n{self.log_tail()}")
        self.check_log()

    def kill(self) -> None:
        """
        Kill the broker by SIGKILL: no handler runs, and data in the memory of the process is lost.

        Raises:
            ServerFailedError: an unexpected entry in the log.
        """
        self._end(is_forced=True)
        self.check_log()

    def check_log(self) -> None:
        """
        Check the log entries written since the last check.

        Raises:
            ServerFailedError: an entry of level ERROR or with a traceback that no pattern of `expected` matches.
        """
        if not self.log.exists():
            return
        with self.log.open("rb") as log:
            log.seek(self._checked_bytes)
            written = log.read()
        self._checked_bytes += len(written)
        found = unexpected_entries(written.decode(errors="replace"), self.expected)
        if found:
            raise ServerFailedError("kohort serve logged:\n" + "".join(found)[:_SHOWN_CHARACTERS])

    def log_tail(self) -> str:
        """The end of the log of all starts."""
        return self.log.read_text(errors="replace")[-_SHOWN_CHARACTERS:] if self.log.exists() else ""

    def _end(self, *, is_forced: bool) -> int | None:
        """End the process and return its exit code; None if there is no process."""
        process, self._process = self._process, None
        return None if process is None else end(process, is_forced=is_forced)


def unexpected_entries(log: str, expected: Sequence[str] = ()) -> list[str]:
    """
    The entries of a log that report a failure: level ERROR or CRITICAL, a traceback, or an exception that Python ignored.

    Args:
        log: text as `kohort serve` writes it. Lines without a time belong to the entry before them.
        expected: regular expressions; an entry that one of them matches is left out, with its traceback.
    """
    patterns = [re.compile(each) for each in expected]
    return [
        entry
        for entry in _entries(log)
        if _is_failure(entry) and not any(pattern.search(entry) for pattern in patterns)
    ]


def _is_failure(entry: str) -> bool:
    head = _ENTRY.match(entry)
    return (head is not None and head["level"] in _LEVELS) or any(sign in entry for sign in _SIGNS)


def _entries(log: str) -> Iterator[str]:
    entry = ""
    for line in log.splitlines(keepends=True):
        if entry and _ENTRY.match(line):
            yield entry
            entry = ""
        entry += line
    if entry:
        yield entry
