"""Delegation tokens (KIP-48, KIP-373): short-lived credentials that a user makes for its programs, or for other users."""
