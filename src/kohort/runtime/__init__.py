"""
The coordinator runtime: it runs shards over partition logs, and makes them replicated, fenced, batched and restartable.

The public names are loaded when they are used, so that a program with an event loop does not load the threads.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.runtime.loop import Loop
    from kohort.runtime.metrics import Histogram, RuntimeMetrics
    from kohort.runtime.ports import Clock, PartitionLog, Verify
    from kohort.runtime.processors import InlineProcessor, Processor
    from kohort.runtime.purgatory import Delayed, Purgatory
    from kohort.runtime.runtime import Runtime
    from kohort.runtime.states import State
    from kohort.runtime.threaded.processor import ThreadedProcessor
    from kohort.runtime.threaded.shared_log import LogOwner, SharedLog
    from kohort.runtime.timers.clock import SystemClock
    from kohort.runtime.timers.wheel import Wheel

_MODULES = {
    "Clock": "ports",
    "Delayed": "purgatory",
    "Histogram": "metrics",
    "InlineProcessor": "processors",
    "LogOwner": "threaded.shared_log",
    "Loop": "loop",
    "PartitionLog": "ports",
    "Processor": "processors",
    "Purgatory": "purgatory",
    "Runtime": "runtime",
    "RuntimeMetrics": "metrics",
    "SharedLog": "threaded.shared_log",
    "State": "states",
    "SystemClock": "timers.clock",
    "ThreadedProcessor": "threaded.processor",
    "Verify": "ports",
    "Wheel": "timers.wheel",
}

__all__ = [
    "Clock",
    "Delayed",
    "Histogram",
    "InlineProcessor",
    "LogOwner",
    "Loop",
    "PartitionLog",
    "Processor",
    "Purgatory",
    "Runtime",
    "RuntimeMetrics",
    "SharedLog",
    "State",
    "SystemClock",
    "ThreadedProcessor",
    "Verify",
    "Wheel",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{module}"), name)
