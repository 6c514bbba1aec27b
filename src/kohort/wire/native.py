"""
What is native and not ours: kio's reader, aiokafka's record batches, CRC-32C; and how to import them without the rest.

People start a server in every test, so a start has a budget. Of these packages only a part is needed, but their `__init__`
would import clients, command lines and test tools: 40 ms for aiokafka and crc32c, 200 ms for kio where hypothesis is installed.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _LazyPackage(ModuleType):
    """A package whose `__init__` runs when somebody first asks for something that it defines; its submodules need no such."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)
        return getattr(self, name)


def hollow(package: str) -> None:
    """Let submodules of a package be imported without it; for who imports the package itself, nothing changes."""
    if package in sys.modules:
        return
    spec = find_spec(package)
    if spec is not None:
        module = module_from_spec(spec)
        module.__class__ = _LazyPackage
        sys.modules[package] = module


hollow("aiokafka")
hollow("crc32c")

from aiokafka.errors import CorruptRecordException  # noqa: E402
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder  # noqa: E402
from crc32c._crc32c import crc32c  # noqa: E402

__all__ = ["CorruptRecordException", "DefaultRecordBatch", "DefaultRecordBatchBuilder", "crc32c", "kio_entity_reader"]


def kio_entity_reader() -> Callable[[type], Callable[[bytes, int], tuple[Any, int]]]:
    """
    kio's native `entity_reader`: from a class to a function that reads it and says how many bytes that took.

    kio's types register themselves with hypothesis where that is installed. No server needs that, so hypothesis is out of sight
    while kio is imported, unless somebody has imported it already.
    """
    is_hidden = "hypothesis" not in sys.modules
    if is_hidden:
        sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        import kio.serial  # noqa: F401
        from kio._kio_native import entity_reader
    finally:
        if is_hidden:
            del sys.modules["hypothesis"]
    return entity_reader
