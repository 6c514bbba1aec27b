"""Found by Spark itself, which looks for `DefaultSource` in modules named `pyspark_*`: `spark.read.format("kohort")`."""

from kohort.pipeline.sources.coordinator_log import CoordinatorLogSource as DefaultSource

__all__ = ["DefaultSource"]
