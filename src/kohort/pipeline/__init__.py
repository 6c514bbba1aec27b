"""The pipeline: coordinator logs of Kohort or of Apache Kafka, turned into tables with PySpark."""
