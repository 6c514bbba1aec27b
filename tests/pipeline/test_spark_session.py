"""Java is found, or the operator is told how to get it; what a session takes of the machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.spark_session import check_pyspark, cores_of, find_java, heap_mib
from kohort_lab.history import History

MIB = 1 << 20


def java(directory: Path, version: str, *, exit_code: int = 0) -> Path:
    """A `java` that only tells its version."""
    path = directory / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho '{version}' >&2\nexit {exit_code}\n")
    path.chmod(0o755)
    return path


# fmt: off
VERSIONS = {
    'openjdk version "17.0.15" 2025-04-15':   True,
    'openjdk version "21" 2023-09-19':        True,
    'java version "16.0.2"':                  False,
    'java version "1.8.0_402"':               False,
    "something else":                         False,
}
# fmt: on


@pytest.mark.parametrize("version", VERSIONS)
def test_java_must_be_17_or_newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    path = java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if VERSIONS[version]:
        assert find_java() == str(path)
        return
    with pytest.raises(ConfigError, match=r"Spark needs Java 17 or newer, and .* apt-get install openjdk-17"):
        find_java()


def test_java_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = java(tmp_path, 'openjdk version "17.0.1"')
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{path.parent}:/bin:/usr/bin")
    assert find_java() == str(path)


def test_no_java_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no Java on the PATH: install a Java runtime"):
        find_java()


def test_no_java_in_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"no Java in JAVA_HOME"):
        find_java()


def test_a_java_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java(tmp_path, "broken", exit_code=1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigError, match=r"does not run"):
        find_java()


# fmt: off
CORES = {
    "local":                    1,
    "local[4]":                 4,
    "local[4,2]":               4,
    "local[*]":                 os.cpu_count(),
    "local[*,3]":               os.cpu_count(),
    "local-cluster[2,1,1024]":  None,
    "spark://host:7077":        None,
    "yarn":                     None,
}
# fmt: on


@pytest.mark.parametrize("master", CORES)
def test_whether_tasks_run_in_the_driver_and_how_many_at_once(master: str) -> None:
    assert cores_of(master) == CORES[master]


def test_the_heap_of_a_local_session_grows_with_its_cores() -> None:
    assert [heap_mib(cores) for cores in (1, 2, 8)] == [512, 512, 1280]


@pytest.mark.spark
def test_a_session_has_the_heap_of_its_cores(spark: Any) -> None:
    runtime = spark.sparkContext._jvm.java.lang.Runtime.getRuntime()
    # One of the two spaces between which survivors are copied does not count.
    assert 0.9 * heap_mib(2) <= runtime.maxMemory() / MIB <= heap_mib(2)


@pytest.mark.spark
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon forks the workers")
def test_sources_and_functions_share_their_workers_and_these_what_was_imported(spark: Any, tmp_path: Path) -> None:
    """Of two sets of workers one would lie idle, and hold what it has read; a thread of the daemon would be lost in a fork."""
    History(1).write(tmp_path)

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
            yield pa.RecordBatch.from_pylist(
                [{"knows": "kohort.pipeline.decode.log" in sys.modules, "threads": threads}]
            )

    spark.read.format("kohort").option("columns", "log_offset").load(str(tmp_path)).count()
    before = daemons()
    told = spark.range(1).mapInArrow(ask, "knows boolean, threads bigint").toArrow().to_pylist()
    assert told == [{"knows": True, "threads": 1}]
    assert daemons() == before


def daemons() -> set[int]:
    return {process.pid for process in psutil.Process().children(recursive=True) if is_daemon(process)}


def is_daemon(process: psutil.Process) -> bool:
    """Whether Spark's JVM has started it, to fork workers off."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE and process.parent().name() == "java")
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.3.0", "4.10.0.dev1", "5.0.0"])
def test_versions_of_pyspark(version: str) -> None:
    check_pyspark(version)


@pytest.mark.parametrize("version", ["3.5.8", "3.0.3"])
def test_an_old_pyspark_is_refused(version: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"PySpark {version} is too old .* need 4\.0 or newer: .* kohort\.pipeline\.read"
    ):
        check_pyspark(version)
