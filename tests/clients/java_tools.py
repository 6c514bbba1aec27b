"""
Apache Kafka's command line tools, started from the jars without the shell scripts.

`kohort.testing.kafka` downloads the jars once for all test processes.
"""

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kohort.testing.kafka import QUICK_START, java, kafka_jars
from kohort.testing.kafka import UnavailableKafkaError as UnavailableToolsError
from tests.clients.waiting import PATIENCE_S

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_OF_ITS_OWN = {CONSUMER_GROUPS: ("--timeout", str(PATIENCE_S * 1_000))}
"""Additional arguments by tool. The default timeout of this one is five seconds."""


class JavaTools:
    """Runs the tools' main classes."""

    def __init__(self, java: str, jars: Path) -> None:
        self._command = (java, *QUICK_START, "-cp", f"{jars}/*")

    def run(self, main_class: str, *arguments: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """Run a tool and return its stdout. The exit code must be one of `codes`, and stderr free of exceptions."""
        done = subprocess.run(
            (*self._command, main_class, *arguments, *_OF_ITS_OWN.get(main_class, ())),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE_S,
            check=False,
        )
        report = f"{main_class} {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        assert done.returncode in codes, report
        assert codes != (0,) or "Exception" not in done.stderr, report
        return done.stdout

    def start(self, main_class: str, *arguments: str) -> "subprocess.Popen[str]":
        """Start a tool as a process. The caller reads its output."""
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
    The tools; downloads the jars at first use.

    Raises:
        UnavailableToolsError: Java or Maven is missing, or the download failed.
    """
    return JavaTools(java(), kafka_jars())


__all__ = ["JavaTools", "UnavailableToolsError", "java_tools"]
