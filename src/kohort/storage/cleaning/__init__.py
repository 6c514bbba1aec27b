"""Cleaning: compaction and retention."""
