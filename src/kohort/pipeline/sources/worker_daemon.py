"""
A daemon for Python workers that have imported the decoder before they start: `spark.python.daemon.module` of our own sessions.

Spark runs a daemon for each kind of worker and forks its workers from it; with Spark's daemon each worker imports its modules
again.
This daemon imports them before the fork: workers start at once, and share those memory pages.

Source: pyspark/daemon.py (Spark 4.3), which takes the module of the worker as its argument.
"""

import gc
import sys
from importlib import import_module

from kohort.model.allocator import use_one_allocator

_SHARED = ("kohort.pipeline.sources.coordinator_log",)
"""Modules of all workers that plan or read a source."""
_TASK_WORKER = "pyspark.worker"
_SHARED_OF_TASKS = ("pyarrow.parquet", "pyspark.sql.worker.plan_data_source_read")
"""More modules of task workers; the second contains the function that tasks unpickle."""


def prepare(worker: str) -> None:
    """
    Import the modules of a kind of worker.

    No other thread may run at a fork: the worker would not have it, and its locks would stay locked. Spark disables NumPy's
    threads (`OMP_NUM_THREADS`), Arrow's pools start on first use, and `JE_ARROW_MALLOC_CONF` disables jemalloc's thread.
    """
    use_one_allocator()
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
