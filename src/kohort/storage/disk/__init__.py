"""Logs in a data directory, in Apache Kafka's layout."""

from kohort.storage.disk.store import DiskStore

__all__ = ["DiskStore"]
