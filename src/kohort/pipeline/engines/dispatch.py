"""
One vocabulary for two engines: the rules of a table are stated once, in PySpark's words, and either engine runs them.

`fn` and `Window` stand for `pyspark.sql.functions` and `pyspark.sql.Window` while a function of `tables` builds a frame out of
Spark's frames, and for those of the local engine while it builds one out of local frames. `over_frames` looks at the arguments.
Nothing here imports an engine before it is used.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

import pyarrow as pa

_P = ParamSpec("_P")
_R = TypeVar("_R")

_EXPRESSIONS = "kohort_expressions"
"""The attribute of a frame's class that names its expressions; frames of Spark have none."""
_current: ContextVar[Any] = ContextVar("kohort-engine", default=None)

Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def over_frames(build: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make `fn` and `Window` those of the engine whose frames are among the arguments."""

    @wraps(build)
    def built(*args: _P.args, **named: _P.kwargs) -> _R:
        for one in (*args, *named.values()):
            expressions = getattr(type(one), _EXPRESSIONS, None)
            if expressions is not None:
                before = _current.set(expressions)
                try:
                    return build(*args, **named)
                finally:
                    _current.reset(before)
        return build(*args, **named)

    return built


def map_in_arrow(frame: Any, run: Run, schema: pa.Schema) -> Any:
    """Return the rows that a function makes of a frame's Arrow batches."""
    if is_local(frame):
        return frame.mapInArrow(run, schema)
    from pyspark.sql.pandas.types import from_arrow_schema

    return frame.mapInArrow(run, from_arrow_schema(schema))


def is_local(frame: Any) -> bool:
    """Tell whether a frame or a session belongs to the local engine."""
    return getattr(type(frame), _EXPRESSIONS, None) is not None


def kept(frame: Any) -> Any:
    """
    Keep the rows of a frame that several tables need.

    Spark keeps them on disk: in memory they take most of the heap, and the system caches the files.
    """
    if is_local(frame):
        return frame.persist()
    from pyspark import StorageLevel

    return frame.persist(StorageLevel.DISK_ONLY)


def cores(session: Any) -> int:
    """Return how many tasks of a session run at the same time."""
    return int(session.cores if is_local(session) else session.sparkContext.defaultParallelism)


class _Functions:
    """`pyspark.sql.functions`, or the functions of the local engine."""

    def __getattr__(self, name: str) -> Any:
        expressions = _current.get()
        if expressions is None:
            from pyspark.sql import functions

            return getattr(functions, name)
        return getattr(expressions, name)


class Window:
    """`pyspark.sql.Window`, or that of the local engine."""

    unboundedPreceding: Final = -(1 << 63)  # noqa: N815  (Spark's names)
    unboundedFollowing: Final = (1 << 63) - 1  # noqa: N815
    currentRow: Final = 0  # noqa: N815

    @staticmethod
    def partitionBy(*columns: Any) -> Any:  # noqa: N802  (Spark's name)
        expressions = _current.get()
        if expressions is None:
            from pyspark.sql import Window as SparkWindow

            return SparkWindow.partitionBy(*columns)
        return expressions.partition_by(*columns)


fn: Final = _Functions()
