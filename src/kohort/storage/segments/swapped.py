"""
The names of a cleaned segment's files. They end in `.swap` while the cleaner puts the segment in place, and readers that know
these names use them meanwhile.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")

SWAP_SUFFIX: Final = ".swap"


def final_name(path: Path) -> Path:
    return path.with_name(path.name.removesuffix(SWAP_SUFFIX))


def open_swapped(path: Path, opened: Callable[[Path], T]) -> T:
    """
    Open a file. One that has lost its `.swap` name meanwhile is opened by its final name.

    Raises:
        OSError: as `opened`.
    """
    try:
        return opened(path)
    except FileNotFoundError:
        if path.suffix != SWAP_SUFFIX:
            raise
        return opened(final_name(path))
