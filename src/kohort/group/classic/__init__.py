"""Classic groups: join, sync, heartbeat, leave. The members' leader assigns; the coordinator only counts heads and votes."""
