"""Segments: the files of one partition's log."""
