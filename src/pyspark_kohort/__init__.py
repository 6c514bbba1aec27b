"""
Found by Spark itself, which looks for `DefaultSource` in modules named `pyspark_*`: `spark.read.format("kohort")`.

A module of that name that cannot be imported makes Spark forget all sources in Python, and it does not say why. So this one can
always be imported, also by a Python that is too old for Kohort, and the source tells what is missing when it is used.
"""

import sys

from pyspark.sql.datasource import DataSource

__all__ = ["DefaultSource"]


class Unusable(DataSource):  # type: ignore[misc]
    """A source that tells why Kohort's own cannot be imported."""

    reason = ""

    @classmethod
    def name(cls) -> str:
        return "kohort"

    def schema(self) -> str:
        version = ".".join(map(str, sys.version_info[:3]))
        raise ImportError(f"the format kohort cannot be used by Python {version} ({sys.executable}): {self.reason}")


try:
    if sys.version_info < (3, 11):  # noqa: UP036  (Spark runs this file with whatever Python it has)
        raise ImportError("Kohort needs Python 3.11 or newer")
    from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource as DefaultSource
except (ImportError, SyntaxError) as exc:
    Unusable.reason = str(exc)
    DefaultSource = Unusable  # type: ignore[misc]
