"""
A Java virtual machine with Apache Kafka's clients, driven from Python.

py4j, which comes with PySpark, calls Java by reflection, so the Java clients need neither a compiler nor a program of ours.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from kohort.testing.kafka import QUICK_START, java, kafka_jars

STOP_TIMEOUT_S = 60


class Jvm:
    """
    One virtual machine. As a context manager it is killed at the end.

    Attributes:
        classes: Java's packages as attributes: `classes.java.util.Properties()`.
    """

    def __init__(self, jars: Path | None = None, flags: Sequence[str] = ()) -> None:
        """
        Args:
            jars: the directory of the classes; Apache Kafka's by default.
            flags: options of Java, in addition to those for a quick start.

        Raises:
            UnavailableKafkaError: Java or Maven is missing, or the download failed.
        """
        (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        port, self._process = launch_gateway(
            jarpath=str(jar),
            classpath=f"{jars or kafka_jars()}/*",
            javaopts=[*QUICK_START, *flags],
            java_path=java(),
            die_on_exit=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        self.classes: Any = self._gateway.jvm

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the process by SIGKILL: no client is closed."""
        process: subprocess.Popen[bytes] = self._process
        process.kill()
        process.wait(STOP_TIMEOUT_S)
        self._gateway.close()

    def class_object(self, name: str) -> Any:
        """A `java.lang.Class`, by its name."""
        return self.classes.java.lang.Class.forName(name)

    def array(self, element: str, *values: Any) -> Any:
        """A Java array, given the class of its elements."""
        made = self._gateway.new_array(self.named(element), len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def strings(self, *values: str) -> Any:
        """An array of strings."""
        return self.array("java.lang.String", *values)

    def named(self, name: str) -> Any:
        """A class by its name, for its constructors and static methods."""
        found = self.classes
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def properties(self, **settings: str) -> Any:
        """A `java.util.Properties`. Underscores in names stand for dots."""
        made = self.classes.java.util.Properties()
        for name, value in settings.items():
            made.setProperty(name.replace("_", "."), value)
        return made
