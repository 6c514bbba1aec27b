"""The work of an action in units that do not depend on the machine."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(action: Callable[[], object]) -> int:
    """How many functions an action calls, with those of C; finalizers of garbage that earlier tests left are not among them."""
    count = 0

    def profile(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count
