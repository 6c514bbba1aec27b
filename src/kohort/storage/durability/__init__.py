"""Durability: flushes, the journal, checkpoints and recovery."""
