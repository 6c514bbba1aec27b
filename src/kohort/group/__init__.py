"""The group coordinator as a state machine: classic groups and committed offsets of one partition of `__consumer_offsets`."""
