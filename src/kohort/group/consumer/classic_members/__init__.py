"""Members of the classic protocol in consumer groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (KIP-848)."""
