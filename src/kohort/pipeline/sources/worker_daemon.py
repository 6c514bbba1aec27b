"""
A daemon for Python workers that have imported the decoder before they start: `spark.python.daemon.module` of our own sessions.

Spark runs a daemon for each kind of worker and forks its workers from it; with Spark's daemon each worker imports its modules
again.
This daemon imports them before the fork: workers start at once, and share those memory pages.

Source: pyspark/daemon.py (Spark 4.3), which takes the module of the worker as its argument.
"""

import gc
import os
import sys
from importlib import import_module

_SHARED = ("kohort.pipeline.sources.coordinator_log",)
"""Modules of all workers that plan or read a source."""
_TASK_WORKER = "pyspark.worker"
_SHARED_OF_TASKS = ("pyarrow.parquet", "pyspark.sql.worker.plan_data_source_read")
"""More modules of task workers; the second contains the function that tasks unpickle."""

_ARROW = {"ARROW_DEFAULT_MEMORY_POOL": "system", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""One allocator for Arrow and NumPy: they reuse each other's freed memory, and all of it can be returned to the system."""


def prepare(worker: str) -> None:
    """
    Import the modules of a kind of worker.

    No other thread may run at a fork: the worker would not have it, and its locks would stay locked. Spark disables NumPy's
    threads (`OMP_NUM_THREADS`), Arrow's pools start on first use, and `JE_ARROW_MALLOC_CONF` disables jemalloc's thread.
    """
    for name, value in _ARROW.items():
        os.environ.setdefault(name, value)
    for name in (worker, *_SHARED, *(_SHARED_OF_TASKS if worker == _TASK_WORKER else ())):
        import_module(name)
    gc.collect()
    # A garbage collection in a worker would write to every object, and so copy the shared pages.
    gc.freeze()


def main() -> None:
    """Run until Spark closes standard input; arguments as for Spark's own daemon."""
    from pyspark.daemon import manager

    prepare(sys.argv[1] if len(sys.argv) > 1 else _TASK_WORKER)
    manager()


if __name__ == "__main__":
    main()
