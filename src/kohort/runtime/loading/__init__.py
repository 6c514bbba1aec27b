"""Loading a shard: its log is read from the start and replayed."""
