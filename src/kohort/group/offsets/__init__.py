"""Committed offsets: commit, fetch, deletion, expiration, and those whose transaction is still open."""
