"""
Helpers that ship with Kohort, for its own tests and for those of its users: a clock that is moved by hand, a log that fails
when told to, a node in virtual time.
"""

from kohort.testing.clock import ManualClock
from kohort.testing.context import FixedContext
from kohort.testing.image import FixedImage, FixedTopic
from kohort.testing.log import FaultyLog
from kohort.testing.virtual import VirtualNode

__all__ = ["FaultyLog", "FixedContext", "FixedImage", "FixedTopic", "ManualClock", "VirtualNode"]
