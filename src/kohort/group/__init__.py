"""The group coordinator as a state machine: groups and committed offsets of one partition of `__consumer_offsets`."""
