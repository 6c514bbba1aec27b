"""
The engine for a question: the one that is expected to answer first.

Spark starts slowly, and its tasks need more processor time than the local engine, which reads with one core. So Spark gains
where logs are large and cores are many. The local engine has bounded memory, for logs of any size.

The size of a directory is that of the segments that a table needs: those of the coordinators, and those of all topics for
tables that read the headers of their batches. Of a cluster the number of records is known, so its size is an estimate.
"""

import math
import os
from importlib.util import find_spec
from typing import NamedTuple

from kohort.client.security import PLAINTEXT, Security
from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.sources.extent import log_bytes
from kohort.pipeline.sources.live import is_live
from kohort.pipeline.spark_session import find_java

AUTO, LOCAL, SPARK = "auto", "local", "spark"
ENGINES = (AUTO, LOCAL, SPARK)
# Measured with 10 million commits (676 MB) on two cores (`python -m bench.pipeline_commands --only engines`).
_SPARK_START_S = 12.0
_LOCAL_S_PER_MB = 0.009
_SPARK_CORE_S_PER_MB = 0.022
_WHOLE_TOPICS = frozenset(
    {
        "lag_over_time",
        "time_lag_over_time",
        "status",
        "status_history",
        "rebalance_costs",
        "blocking_transactions",
        "report",
    }
)
"""Tables that need the batches of all topics."""
_OF_THE_PAST = frozenset({"lag", "time_lag"})
"""Tables that need them for an instant of the past."""
_NEEDED = ("duckdb", "pyarrow", "numpy")


class Choice(NamedTuple):
    """An engine, and the reason for it."""

    is_local: bool
    reason: str


def choose(
    asked: str,
    source: str,
    table: str,
    *,
    is_past: bool = False,
    master: str | None = None,
    security: Security = PLAINTEXT,
) -> Choice:
    """
    Choose the engine for a table of a source.

    Args:
        asked: one of `ENGINES`.
        is_past: the table is for an instant of the past.
        master: of Spark, if one was given.

    Raises:
        ConfigError: the options contradict each other, or the logs are large and Spark cannot run.
    """
    if asked not in ENGINES:
        raise ConfigError(f"--engine {asked}: there are {', '.join(ENGINES)}")
    if asked == LOCAL:
        if master is not None:
            raise ConfigError("--master is for Spark; use it with --engine spark, or leave it out")
        return Choice(True, "as --engine says")
    if asked == SPARK:
        return Choice(False, "as --engine says")
    if master is not None:
        return Choice(False, "as --master says")
    is_whole = table in _WHOLE_TOPICS or (is_past and table in _OF_THE_PAST)
    size = source_bytes(source, is_whole=is_whole, security=security)
    cores = os.cpu_count() or 1
    bytes_max = local_bytes_max(cores)
    until = "logs of any size" if bytes_max == math.inf else f"up to {bytes_max / 1e6:,.0f} MB"
    found = f"{'about ' if is_live(source) else ''}{size / 1e6:,.1f} MB of logs; on {cores} cores the local engine is quicker"
    found += f" for {until}"
    if size <= bytes_max and (missing := _missing()) is None:
        return Choice(True, found)
    reason = found if size > bytes_max else f"{missing} is missing, which the local engine needs"
    _check_spark(reason)
    return Choice(False, reason)


def local_bytes_max(cores: int) -> float:
    """Return the size of logs up to which the local engine answers before Spark on so many cores; infinite for one core."""
    gained_s_per_mb = _LOCAL_S_PER_MB - _SPARK_CORE_S_PER_MB / cores
    return _SPARK_START_S / gained_s_per_mb * 1e6 if gained_s_per_mb > 0 else math.inf


def source_bytes(source: str, *, is_whole: bool, security: Security = PLAINTEXT) -> int:
    """
    Return the size of the logs of coordinators, or of all topics, in a source; of a cluster, an estimate.

    Raises:
        ConfigError: the source cannot be read.
    """
    topics = None if is_whole else INTERNAL_TOPICS
    return log_bytes(source, topics, security=security) or 0


def _missing() -> str | None:
    """Return the first missing dependency of the local engine."""
    return next((name for name in _NEEDED if find_spec(name) is None), None)


def _check_spark(reason: str) -> None:
    """
    Check that Spark can run.

    Raises:
        ConfigError: no Java or no PySpark; with the reason why the local engine was not chosen.
    """
    advice = "--engine local reads the logs in this process, with bounded memory, but longer"
    if find_spec("pyspark") is None:
        raise ConfigError(f"{reason}; Spark is not installed (pip install 'kohort[pipeline]'); {advice}")
    try:
        find_java()
    except ConfigError as exc:
        raise ConfigError(f"{reason}; {exc}; {advice}") from exc
