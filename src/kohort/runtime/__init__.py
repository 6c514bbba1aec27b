"""
Runs shards over partitions: load, append, batch, park, schedule, unload.

What a program needs that runs shards of its own can be imported from here; it is loaded when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kohort.runtime.loop import Loop
    from kohort.runtime.processors import InlineProcessor
    from kohort.runtime.runtime import Runtime
    from kohort.runtime.threaded.processor import ThreadedProcessor
    from kohort.runtime.threaded.shared_log import LogOwner

_MODULES = {
    "InlineProcessor": "processors",
    "LogOwner": "threaded.shared_log",
    "Loop": "loop",
    "Runtime": "runtime",
    "ThreadedProcessor": "threaded.processor",
}

__all__ = ["InlineProcessor", "LogOwner", "Loop", "Runtime", "ThreadedProcessor"]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{module}"), name)
