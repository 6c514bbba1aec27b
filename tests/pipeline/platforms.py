"""
What users have: a Python without Kohort, spark-submit, and a standalone cluster of a master and workers.

`bare_python` has the PySpark, pyarrow, pandas and numpy of the tests' own environment. `installed_python` has any version of
PySpark, from the package index.
"""

import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.spark_session import find_java

SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The launcher, the driver and each executor are JVMs that end within seconds."""
_ALONGSIDE = ("pyspark", "py4j", "pyarrow", "pandas", "numpy", "numpy.libs", "dateutil", "pytz", "tzdata", "six.py")
"""PySpark, pyarrow, pandas and numpy with their own requirements."""
_OF_PLATFORMS = {
    "3.3": ("pyarrow<18", "pandas<2", "numpy<2", "setuptools"),
    "3.4": ("pyarrow<18", "pandas<2", "numpy<2", "setuptools"),
    "3.5": ("pyarrow<18", "pandas<2.3", "numpy<2", "setuptools"),
    "4.0": ("pyarrow<20", "pandas<2.3", "numpy<2.3"),
}
"""What platforms with these versions have; newer ones take what pip chooses, but pandas below 3."""
_CONNECTORS = {
    "3.3": ("2.12", "3.3.4", "3.3.4", "3.4.1"),
    "3.4": ("2.12", "3.4.4", "3.4.4", "3.9.2"),
    "3.5": ("2.12", "3.5.7", "3.5.7", "3.9.2"),
    "4.0": ("2.13", "4.0.1", "4.0.0", "3.9.2"),
    "4.1": ("2.13", "4.1.3", "4.2.0", "3.9.2"),
    "4.2": ("2.13", "4.2.0", "4.2.0", "3.9.2"),
    "4.3": ("2.13", "4.2.0", "4.2.0", "3.9.2"),
}
"""The version of Scala, of the connector, of its module for tokens, and of Kafka's client, as far as the index has them."""
_MASTER = re.compile(r"Starting Spark master at (spark://[\w.:]+)")
_REGISTERED = "Successfully registered with master"
_START_S = 60.0


class Platform(NamedTuple):
    """A Python with PySpark, and the directory of PySpark."""

    python: Path
    spark_home: Path

    def environment(self) -> dict[str, str]:
        """The environment of its processes: nothing of the tests' own Python."""
        kept = {name: os.environ[name] for name in ("PATH", "JAVA_HOME", "TMPDIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self.python.parent),
            "JAVA_TOOL_OPTIONS": SHORT_JVM,
            "PYSPARK_PYTHON": str(self.python),
            "SPARK_HOME": str(self.spark_home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
        }

    def submit(
        self,
        *arguments: str,
        master: str,
        kohort: Path | None = None,
        settings: dict[str, str] | None = None,
        timeout_s: float = 600,
    ) -> subprocess.CompletedProcess[str]:
        """
        Run spark-submit, with settings for small data.

        Args:
            kohort: the zip file, as docs/pipeline.md says: Spark looks for sources in PYTHONPATH, and not in --py-files.
        """
        try:
            find_java()
        except ConfigError as exc:
            pytest.skip(str(exc))
        chosen = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            **({} if kohort is None else {"spark.executorEnv.PYTHONPATH": kohort.name}),
            **(settings or {}),
        }
        command = [str(self.spark_home / "bin" / "spark-submit"), "--master", master]
        command += [word for name, value in chosen.items() for word in ("--conf", f"{name}={value}")]
        command += [] if kohort is None else ["--py-files", str(kohort)]
        return subprocess.run(
            [*command, *arguments],
            env=self.environment() | ({} if kohort is None else {"PYTHONPATH": str(kohort)}),
            cwd=self.python.parent,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )


def own_python() -> Platform:
    """The tests' own Python, which has Kohort."""
    return Platform(Path(sys.executable), Path(str(find_spec("pyspark").origin)).parent)  # type: ignore[union-attr]


def bare_python(directory: Path) -> Platform:
    """A virtual environment with what a platform has, as links to the packages of this one."""
    venv.create(directory, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = directory / "lib" / version / "site-packages"
    home = own_python().spark_home
    for name in _ALONGSIDE:
        if (there := home.parent / name).exists():
            (packages / name).symlink_to(there)
    return Platform(directory / "bin" / "python", home)


def installed_python(version: str, work: Path) -> Platform:
    """A virtual environment with a version of PySpark, made once: some 500 MB from the package index."""
    home = work / f"pyspark-{version}"
    python = home / "bin" / "python"
    if not (home / "ready").exists():
        venv.create(home, with_pip=True, clear=True)
        beside = _OF_PLATFORMS.get(version.rpartition(".")[0], ("pyarrow", "pandas<3", "numpy"))
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"pyspark=={version}", *beside], check=True)
        (home / "ready").touch()
    found = subprocess.run(
        [python, "-c", "import pyspark; print(pyspark.__path__[0])"], check=True, capture_output=True, text=True
    )
    return Platform(python, Path(found.stdout.strip()))


def kafka_jars(platform: Platform, work: Path) -> list[Path]:
    """The jars of Spark's Kafka connector for a PySpark, once from the package index."""
    (release,) = re.findall(r"__version__.*?(\d+\.\d+)", (platform.spark_home / "version.py").read_text())
    scala, connector, tokens, clients = _CONNECTORS[release]
    directory = work / f"jars-{release}"
    wanted = (
        f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{connector}",
        f"org.apache.spark:spark-token-provider-kafka-0-10_{scala}:{tokens}",
        f"org.apache.kafka:kafka-clients:{clients}",
        "org.apache.commons:commons-pool2:2.13.1",
        *(("org.scala-lang.modules:scala-parallel-collections_2.13:1.2.0",) if scala == "2.13" else ()),
    )
    if not (directory / "ready").exists():
        if shutil.which("mvn") is None:
            pytest.skip("there is no Maven, which gets the Kafka connector")
        for artifact in wanted:
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={directory}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (directory / "ready").touch()
    return sorted(directory.glob("*.jar"))


@contextmanager
def standalone(platform: Platform, work: Path, *, workers: int) -> Iterator[str]:
    """A standalone cluster on loopback; its URL."""
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        deploy = "org.apache.spark.deploy"
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = _daemon(platform, work, "master", (f"{deploy}.master.Master", *ports), daemons)
        url = _waited(log, _MASTER, daemons[-1])[1]
        size = ("--cores", "1", "--memory", "700m")
        for number in range(workers):
            name = f"worker-{number}"
            words = (f"{deploy}.worker.Worker", *ports, *size, "--work-dir", str(work / f"{name}-work"), url)
            log = _daemon(platform, work, name, words, daemons)
            _waited(log, re.compile(_REGISTERED), daemons[-1])
        yield url
    finally:
        for one in reversed(daemons):
            one.terminate()
        for one in daemons:
            with suppress(subprocess.TimeoutExpired):
                one.wait(20)
            one.kill()


def _daemon(
    platform: Platform, work: Path, name: str, words: Sequence[str], daemons: list[subprocess.Popen[bytes]]
) -> Path:
    log = work / f"{name}.log"
    with log.open("wb") as file:
        command = [str(platform.spark_home / "bin" / "spark-class"), *words]
        daemons.append(subprocess.Popen(command, env=platform.environment(), stdout=file, stderr=file))
    return log


def _waited(log: Path, text: re.Pattern[str], process: subprocess.Popen[bytes]) -> re.Match[str]:
    """Wait for a line in the log of a process."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until and process.poll() is None:
        if (found := text.search(log.read_text(errors="replace"))) is not None:
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {text.pattern!r} in {log}: {log.read_text(errors='replace')[-2000:]}")
