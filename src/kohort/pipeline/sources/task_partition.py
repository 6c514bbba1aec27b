"""
A task as Spark's partition.

Source: PySpark 4.1, pyspark.sql.datasource.InputPartition.
"""

from pyspark.sql.datasource import InputPartition

from kohort.pipeline.sources.ranges import RangeTask


class TaskPartition(InputPartition):  # type: ignore[misc]
    """A task behind the class that Spark requires, of a batch or a stream; `range` is the task itself."""

    def __init__(self, task: RangeTask) -> None:
        super().__init__(task.task)
        self.range = task
