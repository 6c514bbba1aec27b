"""
Partition logs, in memory and on disk in Kafka's layout.

Public modules:

- `log`: the `Log` and `LogStore` protocols, `LogConfig`, metrics
- `disk`: `DiskStore`, logs in a data directory
- `memory`: `MemoryStore`, logs that live as long as the process
- `tools`: reading and verifying the files of a data directory
"""

__all__ = ["disk", "log", "memory", "tools"]
