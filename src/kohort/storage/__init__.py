"""Partition logs: in memory, and on the disk in Kafka's own layout."""
