"""Directories for tests that kill a process and not the machine: what a page cache holds is enough."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = Path("/dev/shm")


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory in memory where there is such a place: there a flush costs nothing, and a round is quick."""
    with tempfile.TemporaryDirectory(dir=_IN_MEMORY if _IN_MEMORY.is_dir() else None) as directory:
        yield Path(directory)
