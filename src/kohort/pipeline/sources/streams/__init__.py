"""Streams over the logs of coordinators: readers of Spark's micro-batches, their offsets and their progress."""
