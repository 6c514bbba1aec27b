"""Compaction, retention and removal of the batches of logs in a database."""
