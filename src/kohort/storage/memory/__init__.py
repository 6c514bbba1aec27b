"""Logs that live as long as the process: for tests, and for brokers without a data directory."""

from kohort.storage.memory.log import LogContent
from kohort.storage.memory.store import MemoryStore

__all__ = ["LogContent", "MemoryStore"]
