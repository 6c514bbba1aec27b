"""
Native code of other packages: kio's reader and CRC-32C, imported without the rest of their packages. aiokafka's record batches
are in `native_records`.

A start has a budget, because users start a server in every test. The `__init__` of these packages would import clients, command
lines and test tools: 40 ms for aiokafka and crc32c, 200 ms for kio if hypothesis is installed.
"""

import sys
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any


class _LazyPackage(ModuleType):
    """A package whose `__init__` runs at the first access to one of its attributes; its submodules import without that."""

    def __getattr__(self, name: str) -> Any:
        self.__class__ = ModuleType  # type: ignore[assignment]
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        spec.loader.exec_module(self)
        return getattr(self, name)


def import_lazily(package: str) -> None:
    """Let submodules of a package be imported without running its `__init__`; an import of the package still works."""
    if package in sys.modules:
        return
    spec = find_spec(package)
    if spec is not None:
        module = module_from_spec(spec)
        module.__class__ = _LazyPackage
        sys.modules[package] = module
        parent, _, name = package.rpartition(".")
        if parent:
            setattr(sys.modules[parent], name, module)  # as an import does; native modules look for it


import_lazily("crc32c")

from crc32c._crc32c import crc32c  # noqa: E402

__all__ = ["crc32c", "import_lazily", "kio_entity_reader"]


def kio_entity_reader() -> Callable[[type], Callable[[bytes, int], tuple[Any, int]]]:
    """
    kio's native `entity_reader`: from a class to a function that reads it and returns the size.

    kio's types register themselves with hypothesis if that is installed. A server does not need that, so hypothesis is hidden
    while kio is imported, unless it is imported already.
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
