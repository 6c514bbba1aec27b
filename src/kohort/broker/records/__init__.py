"""Records: produce, fetch, offsets of logs, deletion of records."""
