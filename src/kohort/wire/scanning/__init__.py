"""Scans of the records of a batch, which make no object for a record; decompression for large batches."""
