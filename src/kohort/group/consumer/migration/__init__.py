"""Conversions of groups with members: a classic group becomes a consumer group, and the reverse (KIP-848)."""
