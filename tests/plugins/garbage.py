"""
The collector of garbage does not visit the tests themselves: the modules, and the thousands of items of a collection.

Each visit of all objects took a fifth of a second, and all visits together a fifth of the time of tests that make many objects.
"""

import gc
from collections.abc import Generator
from typing import Any

import pytest

YOUNG_OBJECTS_MAX = 10_000
"""As of a node that serves. Hypothesis keeps many objects for a while: with more, each visit takes longer than it saves."""


class Garbage:
    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Nothing of what a collection of tests makes is garbage."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.set_threshold(YOUNG_OBJECTS_MAX)
            gc.enable()


def register(config: pytest.Config) -> None:
    config.pluginmanager.register(Garbage(), "kohort-garbage")
