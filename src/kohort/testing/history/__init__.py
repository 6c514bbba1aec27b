"""
Histories with known truth: what groups and transactions did, from a seed, as segments on disk and as the rows that tables
made of them must hold.
"""

from kohort.testing.history.history import History

__all__ = ["History"]
