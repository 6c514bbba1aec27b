"""
The power goes, or the process is killed, at every system call of a compaction and of the recovery after it: whatever was found
then, the newest record of each key is there with its offset, no offset twice, and cleaning goes on.
"""

import shutil
from pathlib import Path
from random import Random

import pytest

from kohort.storage.disk import DiskStore
from kohort.storage.tools.verify import Verified, verify
from kohort_lab.crashed_disk import Kept, Made, Removed, Renamed, Synced, Tree, write_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.compacted import (
    clean,
    end_transaction,
    make_durable,
    newest,
    open_log,
    put,
    records,
    roll,
)
from tests.storage.owner import Owner, abandon

CHOICES = [Kept.ALL, Kept.NONE, *[Kept.MIXED] * 10] if LONG else [Kept.NONE, Kept.MIXED]
EVERY = 1 if LONG else 6
"""How many system calls of the cleaning lie between those at which the power goes."""
INTERRUPTED = 100 if LONG else 1
"""How many recoveries are interrupted at each of their own system calls."""

pytestmark = pytest.mark.timeout(3_600 if LONG else 900)


def fill(owner: Owner, store: DiskStore) -> dict[bytes | None, tuple[int, bytes | None]]:
    """A log that becomes several groups, one of which loses everything; what a reader of it ends up with."""
    log = open_log(store)
    for turn in range(4):
        for number in range(8):
            put(log, (f"k{number}", f"value {turn}.{number}" * 3), (f"once{turn}.{number}", "x" * 20))
        put(log, ("aborted", "never"), producer_id=9, producer_epoch=0, base_sequence=turn, transactional=True)
        end_transaction(log, 9, committed=False)
        put(log, ("gone", f"{turn}"), ("gone", None))
        roll(log)
    for number in range(3):
        put(log, ("last", f"{number}"))
        roll(log)
    put(log, ("active", "stays"))
    make_durable(owner, store)
    return {key: value for key, value in newest(log).items() if key != b"aborted"}


@pytest.fixture(scope="module")
def cleaning(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[FaultyFiles, dict[bytes | None, tuple[int, bytes | None]]]:
    """Every system call of a cleaning, on a log that is durable."""
    root, owner = tmp_path_factory.mktemp("cleaning") / "data", Owner()
    store = owner.disk(root)
    expected = fill(owner, store)
    log = open_log(store)
    count_before = len(log.segments)
    with FaultyFiles(root) as files:
        clean(owner, store)
    assert len(log.segments) < count_before
    assert {key: value for key, value in newest(log).items() if key != b"aborted"} == expected
    abandon(store)
    return files, expected


def check(root: Path, expected: dict[bytes | None, tuple[int, bytes | None]], where: str) -> None:
    """Recover, look, clean, and look again."""
    with FaultyFiles(root):  # nothing is flushed for real
        owner = Owner()
        store = owner.disk(root)
        try:
            log = open_log(store)
            for _ in range(2):
                offsets = [offset for offset, _, _ in records(log)]
                assert offsets == sorted(set(offsets)), where
                found = {key: value for key, value in newest(log).items() if key != b"aborted"}
                assert found == expected, where
                clean(owner, store)
            assert not store.cleaner.uncleanable, where
        finally:
            store.close()
    assert list(verify(root, Verified())) == [], where
    assert not [path for path in root.rglob("*") if path.suffix in (".cleaned", ".swap", ".deleted")], where


def crashes(files: FaultyFiles, every: int) -> list[tuple[Tree, str]]:
    disk, found = files.disk(), []
    for number, operation in enumerate(files.operations):
        disk.apply(operation)
        if number % every == 0:
            for choice, kept in enumerate(CHOICES):
                tree = disk.crash(Random(f"{number} {choice}"), kept)
                found.append((tree, f"crashed after call {number} ({operation}), keeping {kept}, choice {choice}"))
    return found


def test_a_crash_at_any_call_of_a_cleaning_loses_nothing(
    cleaning: tuple[FaultyFiles, dict[bytes | None, tuple[int, bytes | None]]], tmp_path: Path
) -> None:
    files, expected = cleaning
    for tree, where in crashes(files, EVERY):
        write_tree(tmp_path / "crashed", tree)
        check(tmp_path / "crashed", expected, where)
        shutil.rmtree(tmp_path / "crashed")


def test_the_names_of_cleaned_segments_are_durable_before_the_originals_go(
    cleaning: tuple[FaultyFiles, dict[bytes | None, tuple[int, bytes | None]]],
) -> None:
    """Otherwise a power cut may take both. Random crashes find the missing flush only now and then."""
    made: set[tuple[int, str]] = set()
    """
    Directory and new name. A power cut that took the name of a new segment, but left its other files with their next names,
    would put them beside the original.
    """
    unflushed: set[tuple[int, str]] = set()
    """Directory and base offset; the thread of the cleaner goes on with later segments meanwhile."""
    swaps = 0
    for operation in cleaning[0].operations:
        match operation:
            case Made(_, parent, name):
                made.add((parent, name))
            case Renamed(parent, name, to) if to.endswith(".swap"):
                assert (parent, name) not in made
                unflushed.add((parent, to[:20]))
                swaps += 1
            case Renamed(parent, _, to) if to.endswith(".deleted"):
                assert all(base > to[:20] for directory, base in unflushed if directory == parent)
            case Removed(parent, name) if name.endswith(".log"):
                assert all(base > name[:20] for directory, base in unflushed if directory == parent)
            case Renamed(parent, name, _) if name.endswith(".swap"):
                assert (parent, name[:20]) not in unflushed
            case Synced(node):
                made = {each for each in made if each[0] != node}
                unflushed = {each for each in unflushed if each[0] != node}
    assert swaps > 3


def test_a_recovery_that_is_interrupted_goes_on(
    cleaning: tuple[FaultyFiles, dict[bytes | None, tuple[int, bytes | None]]], tmp_path: Path
) -> None:
    files, expected = cleaning
    swapping = [found for found in crashes(files, 1) if any(path.endswith(".swap") for path in found[0])]
    for tree, where in Random("interrupted").sample(swapping, INTERRUPTED):
        write_tree(tmp_path / "first", tree)
        with FaultyFiles(tmp_path / "first") as recovery:
            store = Owner().disk(tmp_path / "first")
            abandon(store)
        shutil.rmtree(tmp_path / "first")
        for again, where_again in crashes(recovery, 4 * EVERY):
            write_tree(tmp_path / "again", again)
            check(tmp_path / "again", expected, f"{where}; then {where_again}")
            shutil.rmtree(tmp_path / "again")
