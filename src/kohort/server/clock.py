"""The node's time."""

from kohort.runtime.clock import SystemClock

__all__ = ["SystemClock"]
