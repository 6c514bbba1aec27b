"""A broker for tests: started in 200 ms as a process of its own, or in some milliseconds in a thread of this process."""

import asyncio
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from kohort.client.control import ControlClient
from kohort.model.errors import KohortError
from kohort.testing.kit.kit import Kit
from kohort.testing.kit.scope import Scope
from kohort.testing.ports import free_port_range
from kohort.testing.process import KOHORT, START_TIMEOUT_S, end, first_line, spawn
from kohort.wire.apis import DEFAULT_RELEASE

_SHOWN_BYTES = 4_000


class BrokerError(KohortError):
    """The broker did not start, or did not end as it should."""


class Broker(Kit):
    """
    One broker, or several virtual brokers, as `kohort serve --for-tests` makes them: everything is in memory unless a directory
    is given, ports are free ones, groups form at once.

    As a context manager, also of asyncio, it starts on entry and stops on exit. Every method blocks; in asyncio call them by
    `asyncio.to_thread`.

    Attributes:
        bootstrap: HOST:PORT for clients; with several brokers the addresses of all of them, separated by commas.
        ready: what `kohort serve --json` prints: addresses, cluster id, files.
    """

    def __init__(
        self,
        configs: Mapping[str, object] | None = None,
        *,
        brokers: int = 1,
        data_dir: Path | str | None = None,
        kafka: str = DEFAULT_RELEASE,
        in_process: bool = False,
        virtual_time: bool = False,
        faults: Path | str | None = None,
        journal: bool = True,
        options: Sequence[str] = (),
    ) -> None:
        """
        Args:
            configs: broker configurations, by Kafka's names.
            brokers: how many virtual brokers the process presents.
            data_dir: keeps the data, so that it survives a stop.
            kafka: the release of Apache Kafka that the broker is like, such as 4.2.
            in_process: run in a thread of this process instead of a process of its own. It starts faster, and shares the
                interpreter's lock with the test.
            virtual_time: let the clock stand still until `clock.advance`.
            faults: a file of faults that are there from the start.
            journal: keep the last requests with their answers, which costs time with each request.
            options: more options of `kohort serve`, such as `--tls`.
        """
        self.ready: dict[str, Any] = {}
        self._in_process = in_process
        self._has_journal = journal
        self._port = free_port_range(brokers)[0] if brokers > 1 else 0
        self._control_port = 0
        self._arguments = ["--for-tests", "--brokers", str(brokers), "--kafka", kafka]
        if data_dir is not None:
            self._arguments += ["--data-dir", str(data_dir)]
        if virtual_time:
            self._arguments.append("--virtual-time")
        if faults is not None:
            self._arguments += ["--faults", str(faults)]
        for name, value in (configs or {}).items():
            self._arguments += ["--set", f"{name}={_text(value)}"]
        self._arguments += options
        self._log: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: Any = None

    def __repr__(self) -> str:
        return f"Broker({self.ready.get('bootstrap', 'not started')})"

    @property
    def bootstrap(self) -> str:
        return str(self._known("bootstrap"))

    @property
    def cluster_id(self) -> str:
        return str(self._known("cluster_id"))

    @property
    def control(self) -> str:
        return str(self._known("control"))

    @property
    def control_client(self) -> ControlClient:
        return ControlClient(self.control)

    @property
    def is_running(self) -> bool:
        """Whether the broker serves. A process may also have ended by itself."""
        return self._thread is not None or (self._process is not None and self._process.poll() is None)

    def scope(self, name: str) -> Scope:
        """A part of the broker for one test: names that no other test has, and an end of what it made."""
        return Scope(self, name)

    def log_text(self) -> str:
        """The end of the log of a process. A broker in this process logs to the loggers of the package `logging`."""
        if self._log is None:
            return ""
        self._log.seek(max(0, self._log.seek(0, 2) - _SHOWN_BYTES))
        return self._log.read().decode(errors="replace")

    def start(self) -> Self:
        """
        Start, and wait until clients are served. A broker that was stopped gets its port again.

        Raises:
            BrokerError: it does not start; the message says why.
        """
        if self.is_running:
            raise BrokerError("the broker runs already")
        arguments = ["--port", str(self._port), "--control-port", str(self._control_port), *self._arguments]
        self.ready = self._start_thread(arguments) if self._in_process else self._start_process(arguments)
        self._port, self._control_port = int(self.ready["port"]), int(self.ready["control_port"])
        if self._has_journal:
            self.keep_journal()
        return self

    def _start_thread(self, arguments: list[str]) -> dict[str, Any]:
        from kohort.testing.in_process import NodeThread

        thread = NodeThread(arguments)
        try:
            ready = thread.start()
        except KohortError as error:
            raise BrokerError(f"the broker did not start: {error}") from error
        self._thread = thread
        return ready

    def _start_process(self, arguments: list[str]) -> dict[str, Any]:
        if self._log is None:
            self._log = tempfile.TemporaryFile()  # noqa: SIM115 -- it is read after the end of the process, too
        command = [*KOHORT, "serve", *arguments, "--json", "--exit-with-parent"]
        self._process = spawn(command, self._log)
        line = first_line(self._process)
        if not line.startswith("{"):
            self.kill()
            why = f"{line}{self.log_text()}" or f"it said nothing in {START_TIMEOUT_S:.0f} seconds"
            raise BrokerError(f"the broker did not start: {why}")
        return msgspec.json.decode(line, type=dict[str, Any])

    def stop(self) -> None:
        """
        Stop in order. A broker that does not run stays so.

        Raises:
            BrokerError: the disk has failed, acknowledged data is missing, or the process had ended by itself.
        """
        process, self._process = self._process, None
        thread, self._thread = self._thread, None
        if process is not None:
            has_ended = process.poll() is not None
            code = end(process, is_forced=False)
            if code or has_ended:
                raise BrokerError(f"the process of the broker ended with exit code {code}: {self.log_text()}")
        if thread is not None:
            try:
                thread.stop()
            except KohortError as error:
                raise BrokerError(str(error)) from error

    def kill(self) -> None:
        """
        End the process by SIGKILL, as a crash does.

        Raises:
            BrokerError: the broker is in this process.
        """
        if self._in_process:
            raise BrokerError("a broker in this process cannot be killed alone; start it without in_process")
        process, self._process = self._process, None
        if process is not None:
            end(process, is_forced=True)

    def restart(self) -> None:
        """
        Stop and start again, at the same port. Without a data directory all data is gone.

        Raises: as `stop` and `start`.
        """
        self.stop()
        self.start()

    def _known(self, name: str) -> Any:
        if name not in self.ready:
            raise BrokerError("the broker was not started yet: use it in a with statement, or call start()")
        return self.ready[name]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except BrokerError as failure:
            if exc is None:
                raise
            exc.add_note(str(failure))

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, exc, traceback)


def _text(value: object) -> str:
    """A value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
