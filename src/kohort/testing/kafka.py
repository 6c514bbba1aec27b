"""
Apache Kafka: its published jars, and single nodes on free ports.

`conformance/pom.xml` names what is needed. Maven downloads a release into `build/kafka-RELEASE` of the repository. One process
downloads while other processes wait, and a file marks a complete download.
"""

import fcntl
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from kohort.testing.ports import free_ports

RELEASE = "4.4.0"
"""The release of whoever names none."""
_POM = Path("conformance") / "pom.xml"
ROOT = next((each for each in Path(__file__).parents if (each / _POM).is_file()), Path(__file__).parents[3])
"""The repository. The compiled build lies deeper in it than the sources."""
RESOLVE_TIMEOUT_S = 240.0
FORMAT_TIMEOUT_S = 300.0
START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"
_POLL_S = 0.05
_LOG_TAIL_LINES = 40

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dfile.encoding=UTF-8", "-Dlog4j2.level=OFF")
"""Flags for a tool that runs for a second: no optimizing compiler, and no log lines in its output."""

# Without the optimizing compiler a node takes 60 % of the CPU seconds to start. The bench has flags of its own.
_NODE_JVM = (
    "-XX:TieredStopAtLevel=1",
    "-Xms512m",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-Dfile.encoding=UTF-8",
    "-Djava.awt.headless=true",
)

_LOG4J = """\
status=WARN
appender.file.type=File
appender.file.name=file
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
rootLogger.level={level}
rootLogger.appenderRef.file.ref=file
"""


class UnavailableKafkaError(Exception):
    """Apache Kafka cannot be started. The message is the reason, for a skipped test."""


@cache
def java() -> str:
    """
    The path of the Java runtime.

    Raises:
        UnavailableKafkaError: Java is not installed.
    """
    found = shutil.which("java")
    if found is None:
        raise UnavailableKafkaError("there is no Java runtime here (Debian: apt-get install openjdk-17-jre-headless)")
    return found


@cache
def kafka_jars(root: Path = ROOT, release: str = RELEASE) -> Path:
    """
    The directory of the jars; downloads them at first use.

    Args:
        root: the repository, with `conformance/pom.xml`.
        release: of Apache Kafka, such as `4.4.0`.

    Raises:
        UnavailableKafkaError: Maven is not installed, or the download failed.
    """
    pom = root / "conformance" / "pom.xml"
    if not pom.exists():
        raise UnavailableKafkaError(f"{pom}, which names Apache Kafka's jars, is not here")
    return maven_jars(pom, root / "build" / f"kafka-{release}", {"kafka.version": release})


def maven_jars(pom: Path, jars: Path, properties: Mapping[str, str] | None = None) -> Path:
    """
    The directory of the jars that a pom depends on; downloads them at first use.

    Args:
        pom: a Maven project without modules.
        jars: the directory, created if absent. Every set of properties has a directory of its own.
        properties: values for properties of the pom.

    Raises:
        UnavailableKafkaError: Maven is not installed, or the download failed.
    """
    jars.mkdir(parents=True, exist_ok=True)
    mark = jars / ".complete"
    with (jars / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists() or mark.read_text() != pom.read_text():
            _download(pom, jars, properties or {})
            mark.write_text(pom.read_text())
    return jars


def _download(pom: Path, jars: Path, properties: Mapping[str, str]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableKafkaError("Maven, which fetches Java programs, is not here (Debian: apt-get install maven)")
    done = subprocess.run(
        (
            *(maven, "--batch-mode", "--quiet", "--file", str(pom)),
            *("dependency:copy-dependencies", f"-DoutputDirectory={jars}"),
            *(f"-D{key}={value}" for key, value in properties.items()),
        ),
        capture_output=True,
        text=True,
        timeout=RESOLVE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no reason given")
        raise UnavailableKafkaError(f"Maven could not fetch what {pom} names: {reason}")


class KafkaNode:
    """
    One node of Apache Kafka, broker and controller in one process, on free ports of 127.0.0.1.

    As a context manager, it starts on entry and stops on exit. If it does not start, the error contains the end of its log.
    """

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        features: Mapping[str, int] | None = None,
        log_level: str = "WARN",
        release: str = RELEASE,
    ) -> None:
        """
        Args:
            directory: for properties, data and log; new or empty.
            properties: broker configurations, in addition to the necessary ones.
            features: levels of features, such as `transaction.version`, that differ from those of the release.
            release: of Apache Kafka, such as `4.4.0`.

        Raises:
            UnavailableKafkaError: Java or the jars are missing.
        """
        self.directory = directory
        self._features = dict(features or {})
        jars = kafka_jars(release=release)
        self._classpath = f"{jars}/*"
        self._process: subprocess.Popen[bytes] | None = None
        self.port, controller_port = free_ports(2)
        self._archive, self._new_archive = jars / "classes.jsa", jars / f"classes.{self.port}.jsa"
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "kafka.log"
        (directory / "log4j2.properties").write_text(_LOG4J.format(log=self.log, level=log_level))
        self._properties = directory / "server.properties"
        merged = {**_node_properties(self.port, controller_port, directory / "data"), **(properties or {})}
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in merged.items()))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """
        Format the data directory, start the node, and wait until it answers.

        Raises:
            RuntimeError: the node does not start. The message contains the end of its log.
        """
        self._format()
        with (self.directory / "stdout").open("ab") as stdout:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)), stdout=stdout, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers(self.port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"Apache Kafka did not come up:\n{self.log_tail()}")
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """Stop the node by SIGTERM, and by SIGKILL after `STOP_TIMEOUT_S`."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)
                with suppress(FileNotFoundError):  # it used an archive
                    self._new_archive.replace(self._archive)
        self.kill()

    def kill(self) -> None:
        """Kill the node by SIGKILL. It can be started again on its directory."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def log_tail(self) -> str:
        """The end of the log."""
        texts = [path.read_text(errors="replace") for path in (self.directory / "stdout", self.log) if path.exists()]
        return "\n".join("".join(texts).splitlines()[-_LOG_TAIL_LINES:])

    def _java(self, main_class: str, *arguments: str) -> tuple[str, ...]:
        logging = f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}"
        archive = self._archived() or (f"-XX:ArchiveClassesAtExit={self._new_archive}", "-Xlog:disable")
        return (java(), logging, *_NODE_JVM, *archive, "-cp", self._classpath, main_class, *arguments)

    def _archived(self) -> tuple[str, ...]:
        """
        Flags for the classes that a node has archived beside the jars at its stop, with which a start takes half of the
        processor time. None while there is no archive.
        """
        return (f"-XX:SharedArchiveFile={self._archive}", "-Xlog:disable") if self._archive.exists() else ()

    def _format(self) -> None:
        if (self.directory / "data" / "meta.properties").exists():
            return
        features = (part for name, level in self._features.items() for part in ("--feature", f"{name}={level}"))
        arguments = (
            *("format", "--cluster-id", CLUSTER_ID, "--config", str(self._properties), "--standalone"),
            *features,
        )
        done = subprocess.run(
            (java(), *QUICK_START, *self._archived(), "-cp", self._classpath, "kafka.tools.StorageTool", *arguments),
            capture_output=True,
            text=True,
            timeout=FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Apache Kafka's directory could not be formatted:\n{done.stdout}{done.stderr}")


def _node_properties(port: int, controller_port: int, data: Path) -> dict[str, str]:
    listeners = f"PLAINTEXT://127.0.0.1:{port}"
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": listeners,
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
    }


def _answers(port: int) -> bool:
    """Whether the listener accepts a connection and answers ApiVersions v0."""
    question = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(question)
            return len(connection.recv(10)) == 10
    except OSError:
        return False
