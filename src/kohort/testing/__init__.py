"""
Helpers for tests.

`Broker` is a broker for the tests of applications, in a process of its own or in this one. The pytest plug-in `kohort` has
fixtures of it. For programs that are built on Kohort's runtime there are a manual clock, a log with injected faults, a node in
virtual time, and simulations of shards from a seed.

The modules are imported with the first use of a name: pytest loads the plug-in in every run.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.testing.broker import Broker, BrokerError
    from kohort.testing.clock import ManualClock
    from kohort.testing.context import FixedContext
    from kohort.testing.image import FixedImage, FixedTopic, deleted_topics
    from kohort.testing.log import FaultyLog
    from kohort.testing.scope import Scope
    from kohort.testing.simulation import Faults, Simulation, SimulationError, Subject, Work, simulate
    from kohort.testing.virtual import VirtualNode

_MODULES = {
    "Broker": "broker",
    "BrokerError": "broker",
    "Faults": "simulation",
    "FaultyLog": "log",
    "FixedContext": "context",
    "FixedImage": "image",
    "FixedTopic": "image",
    "ManualClock": "clock",
    "Scope": "scope",
    "Simulation": "simulation",
    "SimulationError": "simulation",
    "Subject": "simulation",
    "VirtualNode": "virtual",
    "Work": "simulation",
    "deleted_topics": "image",
    "simulate": "simulation",
}

__all__ = [
    "Broker",
    "BrokerError",
    "Faults",
    "FaultyLog",
    "FixedContext",
    "FixedImage",
    "FixedTopic",
    "ManualClock",
    "Scope",
    "Simulation",
    "SimulationError",
    "Subject",
    "VirtualNode",
    "Work",
    "deleted_topics",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
