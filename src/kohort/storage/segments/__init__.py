"""Segments: the files of one partition's log, with its transaction index and producer snapshots."""
