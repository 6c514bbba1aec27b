"""
A Spark session with a fast start and no console output.

Local by default; any master URL works. The JVM's own messages (some come before any log configuration is read) go to a file,
whose last line is part of the error if the start fails.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kohort.client.addresses import parse_bootstrap
from kohort.model.errors import ConfigError

JAVA_VERSION_MIN = 17
PYSPARK_VERSION_MIN = (4, 0)
"""Older ones have no sources in Python, and make neither Arrow tables of frames nor frames of them."""
LOCAL_MASTER = "local[*]"
_STANDALONE = "spark://"
_CONNECT_TIMEOUT_S = 10.0
_JAVA_ADVICE = (
    "install a Java runtime (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
    " and put it on the PATH, or name it in JAVA_HOME"
)
_JAVA_REASON = re.compile(r"[\w.$]+(?:Exception|Error): (?P<reason>\S.*)")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
# A session starts in 3 s with these, in 4 to 8 s without. The decoding is done in Python anyway.
_SHORT_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=160m"
# A long run needs throughput, and neither collector has G1's barriers. On two cores, which the Python workers share, parallel
# collector threads gain nothing, and their tables take a tenth of the heap.
_SERIAL = "-XX:+UseSerialGC"
_PARALLEL = "-XX:+UseParallelGC"
_SERIAL_CORES_MAX = 2
# Bounds checks at each value cost a tenth of the time; all Arrow batches come from our workers. Spark checks for null itself.
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_DAEMON = "kohort.pipeline.sources.worker_daemon"
# Spark does not start with less than 450 MiB, and the collector keeps a part of the heap for itself.
_HEAP_MIN_MIB = 512
# A base, and the rows and pages of one task per core. All tables of 30 million commits (2 GB) fit into 512 MiB on two cores,
# and take no longer than with 1 GiB; the latest offsets of 100 million as well.
_HEAP_BASE_MIB = 256
_HEAP_MIB_PER_CORE = 128
_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_SPARK_HEAP = "SPARK_DRIVER_MEMORY"


def find_java() -> str:
    """
    Return the path of the `java` that Spark will use.

    Raises:
        ConfigError: no Java, or an older version than Spark needs.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or (home and not Path(java).exists()):
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigError(f"the pipeline runs on Spark, and there is no Java {where}: {_JAVA_ADVICE}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as exc:
        raise ConfigError(f"{java} does not run ({exc}): {_JAVA_ADVICE}") from exc
    version = _VERSION.search(output)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        found = output.splitlines()[0] if output else "of an unknown version"
        raise ConfigError(f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is {found}: {_JAVA_ADVICE}")
    return java


@contextmanager
def session(
    master: str | None = None, *, app_name: str = "kohort", shuffle_partitions: int = 8, is_short: bool = True
) -> Iterator[Any]:
    """
    Start a Spark session, and stop it at the end.

    Args:
        master: any master URL; default `local[*]`.
        is_short: optimise for the start, for sessions of a few seconds.

    Raises:
        ConfigError: no Java, no PySpark, or the session does not start.
    """
    find_java()
    _check_master(master)
    # Otherwise workers run the `python3` of the PATH, which may be another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = master or LOCAL_MASTER
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="kohort-spark-") as scratch:
        settings = _settings(master, Path(scratch), shuffle_partitions, is_short=is_short)
        spark = _start(master, app_name, settings, Path(scratch) / "spark.log")
        try:
            _share_workers(spark)
            yield spark
        finally:
            spark.stop()


def _share_workers(spark: Any) -> None:
    """
    Make sources and functions share one pool of Python workers, to save memory.

    Spark has a pool for each set of environment variables, and uses these for sources that it discovers. The environment of the
    workers does not change: they inherit the removed variables.

    Source: Spark's PythonUtils.createPythonFunction, PythonWorkerFactory.
    """
    environment, jvm = spark.sparkContext.environment, spark.sparkContext._jvm
    paths = (jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath(), jvm.System.getenv("PYTHONPATH"))
    for name in [name for name, value in environment.items() if value == jvm.System.getenv(name)]:
        del environment[name]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def _check_master(master: str | None) -> None:
    """
    Check that a standalone master accepts connections. Spark itself would retry for a minute.

    Raises:
        ConfigError: none of the addresses answers.
    """
    if master is None or not master.startswith(_STANDALONE):
        return
    problem: Exception | None = None
    for address in parse_bootstrap(master.removeprefix(_STANDALONE)):
        try:
            socket.create_connection(address, timeout=_CONNECT_TIMEOUT_S).close()
        except OSError as exc:
            problem = exc
        else:
            return
    raise ConfigError(f"no Spark master answers at {master}: {problem}")


def _settings(master: str, scratch: Path, shuffle_partitions: int, *, is_short: bool) -> dict[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    java_options = [f"-Dlog4j2.configurationFile=file:{log4j}"]
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
        # Blocks on disk are read in pieces: mapped ones count as memory of the JVM.
        "spark.storage.memoryMapThreshold": "1g",
    }
    if master.startswith("local"):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
        if sys.platform.startswith("linux"):
            # On other systems, libraries may not survive a fork.
            settings["spark.python.daemon.module"] = _DAEMON
        work = [_ARROW_OPTIONS, _SHORT_JAVA_OPTIONS if is_short else _collector(master)]
        java_options += work
        # For `local-cluster`; other clusters have their own executor options.
        settings["spark.executor.extraJavaOptions"] = " ".join(work)
    if (cores := cores_of(master)) is not None and not os.environ.get(_SPARK_HEAP):
        settings["spark.driver.memory"] = f"{heap_mib(cores)}m"
    settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    return settings


def _collector(master: str) -> str:
    """Return the collector option for the JVM that runs the tasks."""
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    cores = int(cluster["cores"]) if cluster else cores_of(master) or 1
    return _SERIAL if cores <= _SERIAL_CORES_MAX else _PARALLEL


def cores_of(master: str) -> int | None:
    """Return the number of concurrent tasks in the driver's JVM; None if tasks run elsewhere."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found["cores"] == "*" else int(found["cores"] or 1)


def heap_mib(cores: int) -> int:
    """
    Return the maximum heap of a local session.

    Spark's default is 1 GiB for any number of cores, too little for sixteen.
    """
    return max(_HEAP_BASE_MIB + _HEAP_MIB_PER_CORE * cores, _HEAP_MIN_MIB)


def _start(master: str, app_name: str, settings: dict[str, str], noise: Path) -> Any:
    try:
        import pyspark
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise ConfigError("the pipeline needs PySpark: pip install 'kohort[pipeline]'") from exc
    check_pyspark(pyspark.__version__)
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _silenced(noise):
            return builder.getOrCreate()
    except (PySparkException, Py4JError, OSError, RuntimeError) as exc:
        printed = noise.read_text(errors="replace").strip().splitlines() if noise.exists() else []
        # The reason is the last exception of the JVM, and not the end of its stack.
        reasons = [
            found["reason"] for line in (*printed, *str(exc).splitlines()) if (found := _JAVA_REASON.search(line))
        ]
        told = (str(exc).strip().splitlines() or [""])[0] if isinstance(exc, Py4JError) else str(exc)
        reason = reasons[-1] if reasons else f"{told} {''.join(printed[-1:])}".strip()
        raise ConfigError(f"Spark does not start on {master}: {reason}") from exc


def check_pyspark(version: str) -> None:
    """
    Check that the tables can be made with this version of PySpark.

    Raises:
        ConfigError: it is too old.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if numbers < PYSPARK_VERSION_MIN:
        least = ".".join(map(str, PYSPARK_VERSION_MIN))
        raise ConfigError(
            f"PySpark {version} is too old for the commands, which need {least} or newer: pip install 'kohort[pipeline]'; a job"
            " of your own on PySpark 3.5 reads with kohort.pipeline.read(spark, PATH)"
        )


@contextmanager
def _silenced(log: Path) -> Iterator[None]:
    """Redirect standard error of the process to a file. A JVM started meanwhile keeps writing there."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
