"""
The power goes at every system call of a story, and of the recovery after it.

At each of them the disk keeps of the unflushed what chance says: all, nothing, torn, out of order, zeros. Whatever it was, the
next start ends, has everything that was acknowledged and nothing twice, and can be written to. It logs no error:
nothing was lost, save of a partition that is being deleted.
"""

import logging
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import astuple

from kohort.storage.disk import DiskStore
from kohort_lab.crashed_disk import Kept, Mark, Tree, write_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.owner import Owner, abandon, batch
from tests.storage.story import CONFIG, JOURNAL_FILE_BYTES, Known, Story, check_store, expect, tell

CHOICES = 10 if LONG else 1
"""How often chance decides at each system call, besides everything and nothing being kept."""
RECOVERIES = 60 if LONG else 3
"""How many recoveries are interrupted at each of their own calls."""
KILLED_EVERY = 1 if LONG else 4
"""How many calls lie between the places where the process is killed."""

pytestmark = pytest.mark.timeout(3_600 if LONG else 900)


class Errors(logging.Handler):
    """The errors that a start logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.mark.parametrize("owner_flush_ms_max", [0, math.inf], ids=["by the flusher", "by the owner"])
@pytest.mark.parametrize("seed", range(2 if LONG else 1))
def test_nothing_that_was_acknowledged_is_lost_at_any_system_call(
    base: Path, seed: int, owner_flush_ms_max: float
) -> None:
    files = record(base / "story", owner_flush_ms_max=owner_flush_ms_max)
    for place, (tree, known, where) in enumerate(crashes(files, seed, CHOICES)):
        recover(base, tree, known, where, is_long=place % 7 == 0)


def test_a_recovery_that_is_interrupted_at_any_system_call_is_done_again(base: Path) -> None:
    files = record(base / "story")
    chance = Random("interrupted")
    found = [(tree, expected_at(files, number), where) for number, tree, where in sampled(files, chance)]
    for tree, known, where in found:
        write_tree(base / "first", tree)
        with FaultyFiles(base / "first") as recovery:
            open_store(base / "first").close()
        shutil.rmtree(base / "first")
        for again, _, where_again in crashes(recovery, chance.randint(0, 1 << 30), CHOICES // 4):
            recover(base, again, known, f"{where}; then {where_again}", is_long=False)


def test_a_killed_process_loses_nothing_that_the_system_has(base: Path) -> None:
    """With `--flush os`, which journals nothing."""
    files = record(base / "story", flush="os")
    disk = files.disk()
    for number, (operation, known) in enumerate(zip(files.operations, expect(files.operations), strict=True)):
        disk.apply(operation)
        if not isinstance(operation, Mark) and number % KILLED_EVERY == 0:
            tree = disk.crash(Random(0), Kept.ALL)
            recover(base, tree, known, f"killed after {operation}", is_long=False, flush="os")


def record(root: Path, *, flush: str = "commit", owner_flush_ms_max: float = 0) -> FaultyFiles:
    root.mkdir()
    with FaultyFiles(root) as files:
        tell(Story(root, files, flush=flush, owner_flush_ms_max=owner_flush_ms_max))
    return files


def crashes(files: FaultyFiles, seed: int, choices: int) -> Iterator[tuple[Tree, Known, str]]:
    """
    What is found, what has to be, and where it was: after each system call, several of each.

    What was found before, with nothing more promised since, is not told again: after most calls nothing flushed has changed.
    """
    disk = files.disk()
    seen: set[int] = set()
    for number, (operation, known) in enumerate(zip(files.operations, expect(files.operations), strict=True)):
        disk.apply(operation)
        if isinstance(operation, Mark):
            continue
        for choice, kept in enumerate([Kept.NONE, *[Kept.MIXED] * choices, *[Kept.ALL] * (choices > 1)]):
            tree = disk.crash(Random(f"{seed} {number} {choice}"), kept)
            key = hash((tuple(tree.items()), tuple((name, astuple(expected)) for name, expected in known.items())))
            if key in seen:
                continue
            seen.add(key)
            yield tree, known, f"crashed after call {number} ({operation}), keeping {kept}, choice {choice}"


def sampled(files: FaultyFiles, chance: Random) -> Iterator[tuple[int, Tree, str]]:
    numbers = sorted(chance.sample(range(len(files.operations)), min(RECOVERIES, len(files.operations))))
    disk = files.disk()
    for number, operation in enumerate(files.operations):
        disk.apply(operation)
        if number in numbers:
            kept = chance.choice([Kept.NONE, Kept.MIXED])
            yield number, disk.crash(chance, kept), f"crashed after call {number} ({operation}), keeping {kept}"


def expected_at(files: FaultyFiles, number: int) -> Known:
    *_, known = expect(files.operations[: number + 1])
    return known


def open_store(root: Path, flush: str = "commit") -> DiskStore:
    return Owner().disk(root, flush=flush, journal_file_bytes=JOURNAL_FILE_BYTES)


def recover(base: Path, tree: Tree, known: Known, where: str, *, is_long: bool, flush: str = "commit") -> None:
    """
    Start on it, and look; when it is long, write to it, stop and start again, and look again.

    Nothing stands between this store and the system: where `base` is in memory a flush costs nothing.
    """
    root = base / "crashed"
    write_tree(root, tree)
    errors = Errors()
    logging.getLogger("kohort").addHandler(errors)
    try:
        store = open_store(root, flush)
        try:
            check_store(store, known)
        except BaseException:
            abandon(store)
            raise
        if is_long:
            write_and_start_again(root, store)
        else:
            abandon(store)
        leaving = {f"partition={name}" for (name, _), expected in known.items() if expected.is_leaving}
        assert not [message for message in errors.messages if leaving.isdisjoint(message.split())]
    except Exception as error:
        raise AssertionError(f"{where}: {error!r}") from error
    finally:
        logging.getLogger("kohort").removeHandler(errors)
        shutil.rmtree(root)


def write_and_start_again(root: Path, store: DiskStore) -> None:
    ends = {}
    for topic_partition in store.partitions():
        log = store.get(topic_partition)
        assert log is not None
        log.config = CONFIG
        ends[topic_partition] = log.append(batch("afterwards"), leader_epoch=max(log.leader_epoch, 0))
    store.close()
    store = open_store(root)
    for topic_partition, end_offset in ends.items():
        log = store.get(topic_partition)
        assert log is not None
        assert log.end_offset == end_offset
        assert b"afterwards" in log.read(end_offset - 1, bytes_max=1 << 20)
    store.close()
