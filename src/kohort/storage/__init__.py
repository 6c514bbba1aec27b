"""
Partition logs, in memory and on disk in Kafka's layout.

Public modules:

- `log`: the interface of logs and stores, `LogConfig`
- `disk`: `DiskStore`, logs in a data directory
- `memory`: `MemoryStore`, logs in memory
- `tools`: reading and verifying the files of a data directory
"""

__all__ = ["disk", "log", "memory", "tools"]
