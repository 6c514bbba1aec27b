"""
Work and memory between two turns of the event loop, in units that do not depend on the machine.

A unit is a call of a function. Work in C that is one call however long it takes is counted where it enters C: `_native` lists
these functions with a measure of their work. Other work in C, such as a comparison of long lists, has no count. It is bounded
by the processor time of a turn, with a margin that no busy machine uses up.
"""

import gc
import sys
import threading
import time
import tracemalloc
import zlib
from asyncio.base_events import BaseEventLoop
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any, Self
from unittest.mock import patch

import cramjam
import re2

from kohort.broker.apis.api_table import BYTES_OF_UNIT, UNITS_OF_CLASS

_TURN = BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]


class WorkOfTurns:
    """
    Units of work and seconds of the processor of each turn of the event loop, while the context is entered.

    Attributes:
        units: of the turn with the most.
        seconds: of the turn with the most.
    """

    def __init__(self) -> None:
        self.units = 0
        self.seconds = 0.0
        self._turn = 0
        self._began_at = 0.0
        self._native = ExitStack()

    def __enter__(self) -> Self:
        self._began_at = time.thread_time()
        for module, name, measure in _native():
            counted = self._counted(getattr(module, name), measure)
            self._native.enter_context(patch.object(module, name, counted))
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._end_turn()
        self._native.close()

    def _profile(self, frame: FrameType, event: str, _argument: Any) -> None:
        if frame.f_code.co_filename == __file__:
            return
        if event == "call":
            if frame.f_code is _TURN:
                self._end_turn()
            self._turn += 1
        elif event == "c_call":
            self._turn += 1

    def _end_turn(self) -> None:
        now = time.thread_time()
        self.seconds = max(self.seconds, now - self._began_at)
        self.units = max(self.units, self._turn)
        self._turn, self._began_at = 0, now

    def _counted(self, function: Callable[..., Any], measure: Callable[[tuple[Any, ...], Any], int]) -> Any:
        thread = threading.get_ident()
        zlib_member = zlib.decompressobj

        def call(*arguments: Any, **options: Any) -> Any:
            result = None
            try:
                result = function(*arguments, **options)
            finally:
                if threading.get_ident() == thread:
                    self._turn += measure(arguments, result)
            return _Inflate(result, self._counted) if function is zlib_member else result

        return call


class _Inflate:
    """A decompressor of zlib whose calls are counted."""

    def __init__(self, member: Any, counted: Callable[..., Any]) -> None:
        self._member = member
        self.decompress = counted(member.decompress, _made)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._member, name)


def _expression(arguments: tuple[Any, ...], _program: Any) -> int:
    """Compiling takes time for each character, and for each class with a table of its own."""
    text = str(arguments[0])
    return len(text) + UNITS_OF_CLASS * text.lower().count("\\p")


def _filled(arguments: tuple[Any, ...], size: Any) -> int:
    """Decompression into a buffer; one that failed has filled it."""
    return (len(arguments[1]) if size is None else int(size)) // BYTES_OF_UNIT


def _made(arguments: tuple[Any, ...], result: Any) -> int:
    return len(arguments[0] if result is None else result) // BYTES_OF_UNIT


def _native() -> Iterator[tuple[Any, str, Callable[[tuple[Any, ...], Any], int]]]:
    """Functions in C that work as long as their input says: module, name, units of a call."""
    yield re2, "compile", _expression
    for codec in cramjam.zstd, cramjam.lz4:
        yield codec, "decompress_into", _filled
    yield cramjam.snappy, "decompress_raw_into", _filled
    yield cramjam.snappy, "decompress_raw", _made
    yield zlib, "decompressobj", lambda *_: 0


class Memory:
    """What Python allocates while the context is entered, beyond what it had before."""

    def __enter__(self) -> Self:
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    def peak(self) -> int:
        """The most bytes so far."""
        return tracemalloc.get_traced_memory()[1] - self._before

    def kept(self) -> int:
        """The bytes that are still allocated."""
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - self._before
