"""Consumer groups: the coordinator computes the assignment, and each member is reconciled with it by heartbeats (KIP-848)."""
