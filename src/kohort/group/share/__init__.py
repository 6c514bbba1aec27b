"""Share groups: members that take records of the same partitions, each its own (KIP-932)."""
