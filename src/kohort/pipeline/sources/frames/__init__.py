"""Frames of Spark without a source in Python: planned tasks, files of Hadoop, and the records of Spark's Kafka connector."""
