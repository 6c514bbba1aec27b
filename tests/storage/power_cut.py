"""What a disk may hold when the power is cut: of what was not flushed all, nothing, or some."""

from pathlib import Path
from random import Random

from kohort_lab.crashed_disk import Kept, write_tree
from kohort_lab.faulty_files import FaultyFiles

_KEPT = [Kept.ALL, Kept.NONE, Kept.MIXED, Kept.MIXED]


def cut_power(files: FaultyFiles, seed: int, path: Path) -> None:
    """Write into `path` what is left of the directory that `files` watches, which ends with that."""
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
    tree = disk.crash(Random(seed), Random(seed).choice(_KEPT))
    files.__exit__(None, None, None)
    write_tree(path, tree)
