"""Directories for tests that make many files, and need none of them on a disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_SHARED = Path("/dev/shm")
IN_MEMORY = _SHARED if _SHARED.is_dir() else None
"""A directory in memory where there is such a place, else None: a flush costs nothing there."""


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory of its own for a test, in memory if possible."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        yield Path(directory)
