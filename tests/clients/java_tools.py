"""
Apache Kafka's command line tools, run from the jars without the shell scripts.

`kohort.testing.kafka` downloads the jars once for all test processes.
"""

import subprocess
from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path

from kohort.testing.kafka import QUICK_START, java, kafka_jars
from kohort.testing.kafka import UnavailableKafkaError as UnavailableToolsError
from tests.clients.jvm import Jvm
from tests.clients.tools.runner import ToolRunner
from tests.clients.waiting import PATIENCE_S

CONSUMER_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"
_OF_ITS_OWN = {CONSUMER_GROUPS: ("--timeout", str(PATIENCE_S * 1_000))}
"""Additional arguments by tool. The default timeout of this one is five seconds."""


class JavaTools:
    """Runs the tools' main classes."""

    def __init__(self, java: str, jars: Path) -> None:
        self._command = (java, *QUICK_START, "-cp", f"{jars}/*")

    @cached_property
    def jvm(self) -> Jvm:
        """A virtual machine with the tools and the clients."""
        return Jvm()

    @cached_property
    def runner(self) -> ToolRunner:
        """Runs tools in `jvm`."""
        return ToolRunner(self.jvm)

    def run(self, main_class: str, *arguments: str, stdin: str = "", codes: Sequence[int] = (0,)) -> str:
        """Run a tool and return its stdout. The exit code must be one of `codes`, and stderr free of exceptions."""
        done = self.runner.run(main_class, (*arguments, *_OF_ITS_OWN.get(main_class, ())), stdin)
        report = f"{main_class} {' '.join(arguments)} ended with {done.code}:\n{done.out}{done.err}"
        assert done.code in codes, report
        assert codes != (0,) or "Exception" not in done.err, report
        return done.out

    def close(self) -> None:
        """Kill the virtual machine."""
        if "jvm" in vars(self):
            self.jvm.kill()

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


__all__ = ["CONSUMER_GROUPS", "DUMP", "JavaTools", "UnavailableToolsError", "java_tools"]
