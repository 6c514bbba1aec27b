"""
Three nodes on one store, as processes, with real clients: `make cluster` shows a fail-over, `make torture-nodes` causes faults.

- `processes`: the nodes, and proxies before them and their database
- `replicated`: a database with a standby
- `load`, `ledger`: clients that write, read and commit, and what was acknowledged to them
- `show`: a fail-over in a minute
- `faults`, `torture`: faults at random, and what must hold after each of them
- `failover`: how long commits stop
"""
