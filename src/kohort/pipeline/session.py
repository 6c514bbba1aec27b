"""
A Spark session that starts fast, says nothing and runs anywhere.

Local by default; any master URL. The JVM's own lines (it prints some before any log configuration is read) go to a file,
which is named when something fails.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError

JAVA_VERSION_MIN = 17
LOCAL_MASTER = "local[*]"
_JAVA_ADVICE = (
    "install a Java runtime (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
    " and put it on the PATH, or name it in JAVA_HOME"
)
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
# A session starts in 3 s with these, in 4 to 8 s without; the heavy work is done in Python anyway.
_SHORT_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=160m"
# Throughput is all that counts in a long run, and neither has a barrier at each reference as G1 has it. On two cores, which
# the workers want as well, several collecting threads win nothing, and their tables take a tenth of the heap.
_SERIAL = "-XX:+UseSerialGC"
_PARALLEL = "-XX:+UseParallelGC"
_SERIAL_CORES_MAX = 2
# The workers make all Arrow batches. Looking at bounds once more at each value costs a tenth of the time; and Spark asks
# whether a value is null before it gets it.
_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_DAEMON = "kohort.pipeline.sources.worker_daemon"
# What a heap needs whatever it is used for, and what the rows and pages of a task do; a session on two cores has 1 GiB.
# With 768 MiB all tables of 30 million commits did not fit.
_HEAP_BASE_MIB = 768
_HEAP_MIB_PER_CORE = 128
_LOCAL = re.compile(r"local(?:\[(?P<cores>\*|\d+)(?:,\d+)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*\d+\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_SPARK_HEAP = "SPARK_DRIVER_MEMORY"


def find_java() -> str:
    """
    The `java` that Spark will use.

    Raises:
        ConfigError: there is none, or it is older than Spark needs.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or (home and not Path(java).exists()):
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise ConfigError(f"the pipeline runs on Spark, and there is no Java {where}: {_JAVA_ADVICE}")
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError) as exc:
        raise ConfigError(f"{java} does not run ({exc}): {_JAVA_ADVICE}") from exc
    version = _VERSION.search(told)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        found = told.splitlines()[0] if told else "of an unknown version"
        raise ConfigError(f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is {found}: {_JAVA_ADVICE}")
    return java


@contextmanager
def session(
    master: str | None = None, *, app_name: str = "kohort", shuffle_partitions: int = 8, is_short: bool = True
) -> Iterator[Any]:
    """
    A Spark session, stopped in the end.

    Args:
        master: any master URL; default `local[*]`.
        is_short: start fast rather than run fast; for what is over in seconds.

    Raises:
        ConfigError: no Java, no PySpark, or the session does not come up.
    """
    find_java()
    # Workers start `python3` of the PATH otherwise, which need not be ours.
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
    One set of Python workers for sources and for functions; were it two, both would hold memory.

    Spark keeps a set for each environment that is asked for, and for sources that it finds by itself it asks for this one.
    Nothing of what workers get changes: they inherit what is left out.

    Source: Spark's PythonUtils.createPythonFunction, PythonWorkerFactory.
    """
    asked, jvm = spark.sparkContext.environment, spark.sparkContext._jvm
    paths = (jvm.org.apache.spark.api.python.PythonUtils.sparkPythonPath(), jvm.System.getenv("PYTHONPATH"))
    for name in [name for name, value in asked.items() if value == jvm.System.getenv(name)]:
        del asked[name]
    asked["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)


def _settings(master: str, scratch: Path, shuffle_partitions: int, *, is_short: bool) -> dict[str, str]:
    java_options = [f"-Dlog4j2.configurationFile=file:{_write(scratch / 'log4j2.properties', _LOG4J)}"]
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(shuffle_partitions),
    }
    if master.startswith("local"):
        settings["spark.driver.bindAddress"] = settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.sql.warehouse.dir"] = str(scratch / "warehouse")
        if sys.platform.startswith("linux"):
            # Elsewhere libraries are not sure to survive a fork.
            settings["spark.python.daemon.module"] = _DAEMON
        work = [_ARROW_OPTIONS, _SHORT_JAVA_OPTIONS if is_short else _collector(master)]
        java_options += work
        # Those of `local-cluster`; whoever runs another cluster has said how its executors run.
        settings["spark.executor.extraJavaOptions"] = " ".join(work)
    if (cores := cores_of(master)) is not None and not os.environ.get(_SPARK_HEAP):
        settings["spark.driver.memory"] = f"{heap_mib(cores)}m"
    settings["spark.driver.extraJavaOptions"] = " ".join(java_options)
    return settings


def _collector(master: str) -> str:
    """For the JVM that tasks run in."""
    cluster = _LOCAL_CLUSTER.fullmatch(master)
    cores = int(cluster["cores"]) if cluster else cores_of(master) or 1
    return _SERIAL if cores <= _SERIAL_CORES_MAX else _PARALLEL


def cores_of(master: str) -> int | None:
    """How many tasks run at once in the driver's own JVM; None where tasks run elsewhere."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found["cores"] == "*" else int(found["cores"] or 1)


def heap_mib(cores: int) -> int:
    """
    How large the heap of a session may grow that runs its tasks itself.

    Spark's own default is 1 GiB for any number of cores, which is too little for sixteen.
    """
    return _HEAP_BASE_MIB + _HEAP_MIB_PER_CORE * cores


def _start(master: str, app_name: str, settings: dict[str, str], noise: Path) -> Any:
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as exc:
        raise ConfigError("the pipeline needs PySpark: pip install 'kohort[pipeline]'") from exc
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _silenced(noise):
            return builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as exc:
        last = noise.read_text(errors="replace").strip().splitlines()[-1:] if noise.exists() else []
        raise ConfigError(f"Spark does not start on {master}: {exc} {''.join(last)}".rstrip()) from exc


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@contextmanager
def _silenced(log: Path) -> Iterator[None]:
    """Standard error of the process goes to a file meanwhile; a JVM started in here keeps writing there."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
