"""
Partition logs, in memory and on disk in Kafka's layout.

Public modules:

- `log`: the `Log` and `LogStore` protocols, `LogConfig`, metrics
- `disk`: `DiskStore`, logs in a data directory
- `memory`: `MemoryStore`, logs that live as long as the process
- `tools`: reading and verifying the files of a data directory

The floors, from below: the modules of this folder (batches, markers, producers, the contract of a log, leader epochs), `files`,
`segments`, `logs`, `durability`, `cleaning`, then `disk`, `memory` and `tools`. Each imports only what is below it.
"""

__all__ = ["disk", "log", "memory", "tools"]
