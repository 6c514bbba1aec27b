"""
Segment files to Arrow record batches: numpy, pyarrow and a checksum, without Spark.

`segments` lists the segment files of a directory, `batches` finds whole record batches in their bytes, `records` finds the
records in the batches, and `offsets`, `batch_rows` and `coordinator_records` decode them. `log` combines these; `schemas` has
the columns. The same functions serve segment files and the bytes of a Fetch response.
"""
