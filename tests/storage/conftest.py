"""Directories for tests that make many files, and need none of them on a disk."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory in memory where there is such a place: a flush costs nothing there."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as directory:
        yield Path(directory)
