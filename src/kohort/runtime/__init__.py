"""Runs shards over partitions: load, append, batch, park, schedule, unload."""
