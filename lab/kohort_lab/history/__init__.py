"""
Histories of groups and transactions from a seed: segment files, and the rows that the pipeline's tables must have for them.
"""

from kohort_lab.history.history import History

__all__ = ["History"]
