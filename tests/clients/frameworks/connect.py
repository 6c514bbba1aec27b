"""Workers of Kafka Connect in its distributed mode, with the file connectors of Apache Kafka."""

import json
import signal
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kohort.testing.kafka import QUICK_START, ROOT, java, maven_jars
from kohort.testing.ports import free_ports
from tests.clients.waiting import PATIENCE_S, wait_until

POM = Path(__file__).with_name("connect.xml")
STOP_S = 60
_LOG_TAIL = 4_000
_LOG4J = """\
status=WARN
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=out
"""


class Worker:
    """
    One process. Workers with the same broker and the same `group.id` share the connectors and their tasks.

    As a context manager it starts on entry and stops on exit.
    """

    def __init__(self, directory: Path, bootstrap: str, **settings: str) -> None:
        """
        Args:
            directory: for properties and log; created if absent.
            settings: of the worker, in addition to the necessary ones. Underscores in names stand for dots.

        Raises:
            UnavailableKafkaError: Java or Maven is missing, or the download failed.
        """
        directory.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        self._log = directory / "worker.log"
        properties = directory / "worker.properties"
        merged = {
            **_properties(bootstrap, self._port),
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
        logging = directory / "log4j2.properties"
        logging.write_text(_LOG4J)
        jars = maven_jars(POM, ROOT / "build" / "connect")
        flags = [flag for flag in QUICK_START if not flag.startswith("-Dlog4j2")]
        main_class = "org.apache.kafka.connect.cli.ConnectDistributed"
        where = f"-Dlog4j2.configurationFile={logging}"
        self._command = (java(), *flags, where, "-cp", f"{jars}/*", main_class, str(properties))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc is not None:
            exc.add_note(self._log.read_text()[-_LOG_TAIL:])
        self.end(signal.SIGTERM)

    def start(self) -> None:
        """Start the process, and wait until it is in the group and answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        wait_until(self._answers, what=lambda: f"the worker answers:\n{self._log.read_text()[-_LOG_TAIL:]}")

    def end(self, number: signal.Signals) -> None:
        """End the process by a signal: SIGTERM stops it, SIGKILL leaves its connectors to the session timeout."""
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(STOP_S)
            finally:
                process.kill()
                process.wait()

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the worker, and return the decoded answer; it is repeated while the group rebalances (409)."""

        def answered() -> tuple[Any] | None:
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{self._port}{path}", data, {"Content-Type": "application/json"}, method=method
            )
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                    return (json.loads(answer.read() or b"null"),)
            except urllib.error.HTTPError as exc:
                if exc.code in (404, 409):
                    return None
                raise AssertionError(f"{method} {path}: {exc.code} {exc.read().decode()}") from exc

        found = wait_until(answered, what=f"{method} {path}")
        return found[0] if found else None

    def states(self, connector: str) -> list[str]:
        """The states of a connector and of its tasks: RUNNING, PAUSED, STOPPED, FAILED or UNASSIGNED."""
        status = self.ask("GET", f"/connectors/{connector}/status")
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-_LOG_TAIL:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/connectors", timeout=PATIENCE_S) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _properties(bootstrap: str, port: int) -> dict[str, str]:
    topics = {"config": "configs", "offset": "offsets", "status": "status"}
    string = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "connect-cluster",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": string,
        "value.converter": string,
        **{f"{name}.storage.topic": f"connect-{topic}" for name, topic in topics.items()},
        **{f"{name}.storage.replication.factor": "1" for name in topics},
        "offset.storage.partitions": "3",
        "status.storage.partitions": "2",
        "offset.flush.interval.ms": "200",
        # A killed worker is missed soon, and its connectors move at once.
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
        "exactly.once.source.support": "enabled",
    }
