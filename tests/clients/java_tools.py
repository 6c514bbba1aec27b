"""
Apache Kafka's own command line tools, as they are published: started straight from the jars, without the shell scripts.

The jars come from Maven's central repository, or the local cache, by way of `conformance/pom.xml`; once for all tests and all
test processes.
"""

import fcntl
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
JARS = ROOT / "build" / "kafka-4.2.1"
RESOLVE_TIMEOUT_S = 240
TOOL_TIMEOUT_S = 60

QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-Dfile.encoding=UTF-8")
"""A tool lives for a second: what a compiler would win, it never earns."""


class UnavailableToolsError(Exception):
    """Why there are no Java tools here."""


class JavaTools:
    """Runs the tools' main classes."""

    def __init__(self, java: str, jars: Path) -> None:
        self._command = (java, *QUICK_START, "-cp", f"{jars}/*")

    def run(self, main_class: str, *arguments: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """What the tool printed on stdout; its exit code must be one of `codes`, and stderr free of exceptions."""
        done = subprocess.run(
            (*self._command, main_class, *arguments),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=TOOL_TIMEOUT_S,
            check=False,
        )
        report = f"{main_class} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode in codes, report
        assert codes != (0,) or "Exception" not in done.stderr, report
        return done.stdout

    def start(self, main_class: str, *arguments: str) -> "subprocess.Popen[str]":
        """The tool as a process, its output to be read by the caller."""
        return subprocess.Popen(
            (*self._command, main_class, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )


@cache
def java_tools() -> JavaTools:
    """
    The tools, downloaded if need be.

    Raises:
        UnavailableToolsError: Java or Maven is absent, or the jars are not to be had.
    """
    java = shutil.which("java")
    if java is None:
        raise UnavailableToolsError("there is no Java runtime here")
    return JavaTools(java, _resolved())


def _resolved() -> Path:
    """The directory with all jars. One process downloads, the others wait for it; a mark says that it came to its end."""
    JARS.mkdir(parents=True, exist_ok=True)
    mark = JARS / ".complete"
    with (JARS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not mark.exists():
            _download()
            mark.touch()
    return JARS


def _download() -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableToolsError("Maven, which fetches Apache Kafka's tools, is not here")
    goal = ("dependency:copy-dependencies", f"-DoutputDirectory={JARS}")
    done = subprocess.run(
        (maven, "--batch-mode", "--quiet", "--file", str(ROOT / "conformance" / "pom.xml"), *goal),
        capture_output=True,
        text=True,
        timeout=RESOLVE_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        reason = next((line for line in done.stdout.splitlines() if "ERROR" in line), "no reason given")
        raise UnavailableToolsError(f"Maven could not fetch Apache Kafka's tools: {reason}")
