"""Cleaning: compaction of logs."""
