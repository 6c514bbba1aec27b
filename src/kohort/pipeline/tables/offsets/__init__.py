"""Commits, and the offsets that groups have committed."""
