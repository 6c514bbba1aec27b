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
    from kohort.client.control import ControlError, WaitTimeoutError
    from kohort.testing.broker import Broker, BrokerError
    from kohort.testing.clock import ManualClock
    from kohort.testing.context import FixedContext
    from kohort.testing.image import FixedImage, FixedTopic, deleted_topics
    from kohort.testing.kit.clock import Clock
    from kohort.testing.kit.events import Events
    from kohort.testing.kit.faults import Fault, Hold, Snapshot
    from kohort.testing.kit.running import RunningBroker
    from kohort.testing.kit.scope import Scope
    from kohort.testing.log import FaultyLog
    from kohort.testing.ports import free_ports
    from kohort.testing.simulation import Faults, Simulation, SimulationError, Subject, Work, simulate
    from kohort.testing.virtual import VirtualNode

_MODULES = {
    "Broker": "kohort.testing.broker",
    "BrokerError": "kohort.testing.broker",
    "Clock": "kohort.testing.kit.clock",
    "ControlError": "kohort.client.control",
    "Events": "kohort.testing.kit.events",
    "Fault": "kohort.testing.kit.faults",
    "Faults": "kohort.testing.simulation",
    "FaultyLog": "kohort.testing.log",
    "FixedContext": "kohort.testing.context",
    "FixedImage": "kohort.testing.image",
    "FixedTopic": "kohort.testing.image",
    "Hold": "kohort.testing.kit.faults",
    "ManualClock": "kohort.testing.clock",
    "RunningBroker": "kohort.testing.kit.running",
    "Scope": "kohort.testing.kit.scope",
    "Simulation": "kohort.testing.simulation",
    "SimulationError": "kohort.testing.simulation",
    "Snapshot": "kohort.testing.kit.faults",
    "Subject": "kohort.testing.simulation",
    "VirtualNode": "kohort.testing.virtual",
    "WaitTimeoutError": "kohort.client.control",
    "Work": "kohort.testing.simulation",
    "deleted_topics": "kohort.testing.image",
    "free_ports": "kohort.testing.ports",
    "simulate": "kohort.testing.simulation",
}

__all__ = [
    "Broker",
    "BrokerError",
    "Clock",
    "ControlError",
    "Events",
    "Fault",
    "Faults",
    "FaultyLog",
    "FixedContext",
    "FixedImage",
    "FixedTopic",
    "Hold",
    "ManualClock",
    "RunningBroker",
    "Scope",
    "Simulation",
    "SimulationError",
    "Snapshot",
    "Subject",
    "VirtualNode",
    "WaitTimeoutError",
    "Work",
    "deleted_topics",
    "free_ports",
    "simulate",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_MODULES[name]), name)
    globals()[name] = found
    return found
