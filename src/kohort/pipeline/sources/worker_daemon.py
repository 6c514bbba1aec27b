"""
Python workers that know the decoder before they start: `spark.python.daemon.module` of our own sessions.

Spark keeps a daemon for each kind of worker and forks its workers off it, and each imports what it needs once more. Here the
daemon imports first: workers start at once, and share those pages in place of holding a copy each.

Source: pyspark/daemon.py (Spark 4.3), which takes the module of the worker as its argument.
"""

import gc
import os
import sys
from importlib import import_module

_SHARED = ("kohort.pipeline.sources.coordinator_log",)
"""What every worker needs that plans a source or reads it."""
_TASK_WORKER = "pyspark.worker"
_SHARED_OF_TASKS = ("pyarrow.parquet", "pyspark.sql.worker.plan_data_source_read")
"""Tasks unpickle their function out of the second."""

_ARROW = {"ARROW_DEFAULT_MEMORY_POOL": "system", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""One allocator for Arrow and NumPy: what either frees the other can have, and all of it can be given back."""


def prepare(worker: str) -> None:
    """
    Import what workers of a module need.

    No thread may run when a worker is forked off: it would be missing there, with all that it held. NumPy's have been turned
    off by Spark (`OMP_NUM_THREADS`), Arrow's pools start with their first work, and the one that would run is jemalloc's.
    """
    for name, value in _ARROW.items():
        os.environ.setdefault(name, value)
    for name in (worker, *_SHARED, *(_SHARED_OF_TASKS if worker == _TASK_WORKER else ())):
        import_module(name)
    gc.collect()
    # A collection in a worker would write to every object, and so copy what is shared.
    gc.freeze()


def main() -> None:
    """Run until Spark closes standard input; the arguments are those of Spark's own daemon."""
    from pyspark.daemon import manager

    prepare(sys.argv[1] if len(sys.argv) > 1 else _TASK_WORKER)
    manager()


if __name__ == "__main__":
    main()
