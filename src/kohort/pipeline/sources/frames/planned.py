"""
The rows of a source as a frame of Spark, planned when it is made and read by `mapInArrow`. Works with PySpark 3.5, which has no
sources in Python. `explain()` of the frame tells what is read.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from kohort.pipeline.decode import schemas
from kohort.pipeline.sources.explanation import summary
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import RangeTask, read_task


def frame_of(spark: Any, options: SourceOptions) -> Any:
    """
    Return the rows of a source as a frame.

    `spark.read.format("kohort")` gives the same rows. Spark starts Python processes beside the workers to plan each of those
    reads, and keeps them: 300 MiB for the tables of a run. Rows also take a longer way through the JVM.

    Raises:
        ConfigError: the source cannot be read.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    tasks = tasks_of(options, spark)
    schema = from_arrow_schema(schemas.subset(options.columns))
    rows = partial(_rows, options, tasks)
    # Spark shows the name of the function in its plans.
    rows.__name__ = summary(options, tasks)  # type: ignore[attr-defined]
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(rows, schema)


def _rows(
    options: SourceOptions, tasks: Sequence[RangeTask], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the tasks of some numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_task(options, tasks[number])
