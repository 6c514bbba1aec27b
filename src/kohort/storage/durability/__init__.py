"""Durability: flushes, the journal and checkpoints."""
