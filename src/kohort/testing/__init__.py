"""
Test helpers for Kohort and for programs that use it: a manual clock, a log with injected faults, a node in virtual time, and
simulations of shards from a seed.
"""

from kohort.testing.clock import ManualClock
from kohort.testing.context import FixedContext
from kohort.testing.image import FixedImage, FixedTopic, deleted_topics
from kohort.testing.log import FaultyLog
from kohort.testing.simulation import Faults, Simulation, SimulationError, Subject, Work, simulate
from kohort.testing.virtual import VirtualNode

__all__ = [
    "Faults",
    "FaultyLog",
    "FixedContext",
    "FixedImage",
    "FixedTopic",
    "ManualClock",
    "Simulation",
    "SimulationError",
    "Subject",
    "VirtualNode",
    "Work",
    "deleted_topics",
    "simulate",
]
