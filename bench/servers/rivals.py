"""
The rivals: Kohort, Apache Kafka and kfake, each as a process with its own directory.

A flush mode means the same for each: `memory` keeps no files, `os` acknowledges after the write to the page cache, `commit`
after a flush to disk.

| rival | memory | os | commit |
|---|---|---|---|
| Kohort | `--memory` | `--flush os` | `--flush commit`: one fdatasync for all waiting writes |
| Apache Kafka | - | its default | `log.flush.interval.messages=1`: an fsync for every append |
| kfake | no `DataDir`, its default | `DataDir` | `DataDir` and `SyncWrites`: an fsync for every batch and commit |
"""

import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeAlias

from bench.servers.process import ROOT, Server, ServerError, running
from kohort.compiled import is_compiled
from kohort.testing.kafka import (
    CLUSTER_ID,
    FORMAT_TIMEOUT_S,
    QUICK_START,
    RELEASE,
    UnavailableKafkaError,
    java,
    kafka_jars,
)

Starter: TypeAlias = Callable[[str, Path], AbstractContextManager[Server]]
"""Starts a server, given the flush mode and a directory, which may have data of an earlier start."""

KOHORT_COMMAND: Final = str(Path(sys.executable).with_name("kohort"))
KFAKE_SOURCE: Final = ROOT / "bench" / "kfake"
KFAKE_BINARY: Final = ROOT / "build" / "kfake"
GO_TIMEOUT_SECONDS: Final = 600.0
KAFKA_JVM: Final = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
    "-Djava.awt.headless=true",
)
"""The default options of kafka-server-start.sh and kafka-run-class.sh of the release."""


class AbsentRivalError(Exception):
    """A rival cannot run on this machine. The message says why."""


@dataclass(frozen=True, slots=True)
class Rival:
    """
    Attributes:
        ready: prepares it; raises `AbsentRivalError`.
        has_jit: it has a just-in-time compiler and needs a longer warm-up.
        modes: the flush modes that it has.
    """

    name: str
    version: Callable[[], str]
    start: Starter
    ready: Callable[[], object] = lambda: None
    has_jit: bool = False
    modes: tuple[str, ...] = ("memory", "os", "commit")


@contextmanager
def fresh(rival: Rival, flush: str) -> Iterator[Server]:
    """Run a rival on a new directory, which is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as directory, rival.start(flush, Path(directory)) as one:
        yield one


# -- Kohort -------------------------------------------------------------------------------------------------------------


@contextmanager
def start_kohort(flush: str, directory: Path, *, prefix: Sequence[str] = ()) -> Iterator[Server]:
    """
    Args:
        prefix: command that runs Kohort, for example an interpreter with a profiler.
    """
    command = [*prefix, KOHORT_COMMAND, "serve", "--host", "127.0.0.1", "--port", "0"]
    command += ["--set", "group.initial.rebalance.delay.ms=0"]
    command += ["--memory"] if flush == "memory" else ["--data-dir", str(directory / "data"), "--flush", flush]
    with running(command, directory) as server:
        yield server


# -- Apache Kafka -------------------------------------------------------------------------------------------------------


def ready_kafka() -> None:
    try:
        java()
        kafka_jars()
    except UnavailableKafkaError as error:
        raise AbsentRivalError(str(error)) from error


@contextmanager
def start_kafka(flush: str, directory: Path) -> Iterator[Server]:
    """Run Apache Kafka. The directory is formatted before the start is timed."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, controller_port = one.getsockname()[1], other.getsockname()[1]
    properties = directory / "server.properties"
    settings = _kafka_settings(flush, directory / "data", port, controller_port)
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    if not (directory / "data" / "meta.properties").exists():
        _format_kafka(properties)
    logging = directory / "log4j2.properties"
    logging.write_text(
        "status=WARN\nrootLogger.level=WARN\nappender.out.type=Console\nappender.out.name=out\n"
        "appender.out.layout.type=PatternLayout\nrootLogger.appenderRef.out.ref=out\n"
    )
    command = [java(), f"-Dlog4j2.configurationFile={logging}", *KAFKA_JVM, "-cp", f"{kafka_jars()}/*"]
    with running([*command, "kafka.Kafka", str(properties)], directory, port) as server:
        yield server


def _kafka_settings(flush: str, data: Path, port: int, controller_port: int) -> dict[str, str]:
    """Return the settings of one node that is broker and controller, with replication factors of 1."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    if flush == "commit":
        settings["log.flush.interval.messages"] = "1"
    return settings


def _format_kafka(properties: Path) -> None:
    arguments = ("format", "--cluster-id", CLUSTER_ID, "--config", str(properties), "--standalone")
    done = subprocess.run(
        (java(), *QUICK_START, "-cp", f"{kafka_jars()}/*", "kafka.tools.StorageTool", *arguments),
        capture_output=True,
        text=True,
        timeout=FORMAT_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise ServerError(f"formatting the directory of Apache Kafka failed: {done.stdout}{done.stderr}")


# -- kfake --------------------------------------------------------------------------------------------------------------


@cache
def ready_kfake() -> None:
    """Build kfake. Go does nothing if it is up to date."""
    go = shutil.which("go")
    if go is None:
        raise AbsentRivalError("Go is not installed (Debian: apt-get install golang-go)")
    KFAKE_BINARY.parent.mkdir(exist_ok=True)
    done = subprocess.run(
        (go, "build", "-buildvcs=false", "-o", str(KFAKE_BINARY), "."),
        cwd=KFAKE_SOURCE,
        capture_output=True,
        text=True,
        timeout=GO_TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise AbsentRivalError(
            f"kfake could not be built: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}"
        )


@contextmanager
def start_kfake(flush: str, directory: Path) -> Iterator[Server]:
    command = [str(KFAKE_BINARY)]
    if flush != "memory":
        command += ["-data", str(directory / "data"), *(["-sync"] if flush == "commit" else [])]
    with running(command, directory) as server:
        yield server


def _kohort_version() -> str:
    return version("kohort") + (" compiled" if is_compiled() else "")


def _kfake_version() -> str:
    """Return the version in go.mod: date and commit."""
    line = next(it for it in (KFAKE_SOURCE / "go.mod").read_text().splitlines() if "pkg/kfake v" in it)
    return line.split()[-1]


KOHORT: Final = Rival("kohort", _kohort_version, start_kohort)
KAFKA: Final = Rival("kafka", lambda: RELEASE, start_kafka, ready_kafka, has_jit=True, modes=("os", "commit"))
KFAKE: Final = Rival("kfake", _kfake_version, start_kfake, ready_kfake)
RIVALS: Final = (KOHORT, KAFKA, KFAKE)


def present(names: Sequence[str], on_absent: Callable[[str, str], None]) -> list[Rival]:
    """Return the named rivals that can run here. `on_absent` gets the name of each other one, and the reason."""
    found = []
    for rival in RIVALS:
        if rival.name in names:
            try:
                rival.ready()
                found.append(rival)
            except AbsentRivalError as error:
                on_absent(rival.name, str(error))
    return found
