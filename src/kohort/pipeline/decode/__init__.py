"""
Segment files to Arrow record batches: numpy, pyarrow and a checksum, without Spark.

What a directory holds (`segments`), which of its bytes are whole record batches (`batches`, `compression`), where the
records in them lie (`records`), and what those say (`offsets`, `groups`, `markers`). `log` puts it together; the columns
are in `schemas`. The same functions serve segment files and the bytes of a Fetch response.
"""
