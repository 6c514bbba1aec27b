"""Columnar reads: many records of many batches at once. It needs numpy, and is imported where much is read."""
