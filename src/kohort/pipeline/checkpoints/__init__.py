"""Checkpoints of Structured Streaming as groups: the position of a query, its history, and what only they know."""
