"""The order in which a cleaned segment takes its place, and how far a log may be cleaned."""

from pathlib import Path

import pytest

from kohort.storage.segments.swap import finish_swaps
from kohort.wire.batches import BatchRecord, build_batch, stamp
from kohort_lab.crashed_disk import Operation, Removed, Renamed, Synced
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.compacted import clean, end_transaction, make_durable, open_log, put, roll
from tests.storage.owner import Owner

OLD, NEWER = f"{0:020d}", f"{3:020d}"


def make_files(directory: Path, *names: str) -> None:
    """Segments of three batches; other files are empty."""
    directory.mkdir()
    for name in names:
        base_offset = int(name[:20])
        batches = b""
        for offset in range(base_offset, base_offset + 3):
            batch = bytearray(build_batch([BatchRecord(b"k", b"v")], timestamp_ms=1000))
            stamp(batch, base_offset=offset, leader_epoch=0)
            batches += batch
        (directory / name).write_bytes(batches if ".log" in name else b"")


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("new", [(".log.cleaned", ".index.swap"), (".log.swap", ".index.cleaned")])
def test_a_swap_whose_files_were_not_all_renamed_is_void(base: Path, new: tuple[str, str]) -> None:
    """The first rename of a set was not durable: a `.cleaned` file tells that the set is not complete."""
    directory = base / "t-0"
    old = {f"{OLD}.log", f"{OLD}.index", f"{NEWER}.log"}
    make_files(directory, *old, *(OLD + suffix for suffix in new))
    (directory / f"{OLD}{new[1]}").write_bytes(b"new entries")
    finish_swaps(directory)
    assert names(directory) == old
    assert (directory / f"{OLD}.index").read_bytes() == b""


def test_replaced_segments_are_gone_for_good_before_the_new_one_has_its_name(base: Path) -> None:
    """Else a crash could leave the new segment beside old ones that hold the same offsets."""
    directory = base / "t-0"
    make_files(
        directory, f"{OLD}.log", f"{OLD}.index", f"{NEWER}.log", f"{6:020d}.log", f"{OLD}.log.swap", f"{OLD}.index.swap"
    )
    (directory / f"{OLD}.log.swap").write_bytes(
        (directory / f"{OLD}.log").read_bytes() + (directory / f"{NEWER}.log").read_bytes()
    )
    with FaultyFiles(directory) as files:
        finish_swaps(directory)
    assert names(directory) == {f"{OLD}.log", f"{OLD}.index", f"{6:020d}.log"}
    kinds = [type(operation) for operation in files.operations]
    assert kinds == [Removed] * 3 + [Synced] + [Renamed] * 2 + [Synced]
    assert files.operations[4] == Renamed(0, f"{OLD}.log.swap", f"{OLD}.log"), "the log is renamed first"


def test_the_cleaner_makes_each_step_of_a_swap_durable_before_the_next(base: Path) -> None:
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        log = open_log(store)
        for number in range(12):
            put(log, ("k", f"value {number}" * 10))
        make_durable(owner, store)
        before = len(files.operations)
        clean(owner, store)
        store.close()
    steps = [step for operation in files.operations[before:] if (step := step_of(operation)) is not None]
    groups = "".join(steps).split("swap")[1:]
    assert groups
    for group in groups:
        assert group.startswith("sync")
        taken_out, _, rest = group.partition("out")
        assert taken_out == "sync", "the new files are durable before the old ones lose their names"
        assert "sync" in rest[: rest.index("in")], "and the old names are gone for good before the new ones come"


def step_of(operation: Operation) -> str | None:
    """What an operation does to the names of a partition; repeated renames of one step count once."""
    if isinstance(operation, Synced):
        return "sync"
    if isinstance(operation, Renamed) and operation.to.endswith(".log.swap"):
        return "swap"
    if isinstance(operation, Renamed) and operation.to.endswith(".log.deleted"):
        return "out"
    if isinstance(operation, Renamed) and operation.name.endswith(".log.swap"):
        return "in"
    return None


def test_a_log_is_cleaned_below_its_recovery_point_only(base: Path) -> None:
    """Above it, recovery takes a gap for a loss and cuts the log there."""
    owner = Owner()
    store = owner.disk(base / "data")
    log = open_log(store)
    put(log, ("k", "first"))
    roll(log)
    make_durable(owner, store)
    recovery_point = log.end_offset
    for number in range(8):
        put(log, ("k", f"{number}"))
        roll(log)
    store.flush()
    dirty = store.cleaner.look_at(log)
    assert dirty.waits_for_checkpoint
    assert dirty.first_uncleanable_offset == recovery_point
    make_durable(owner, store)
    dirty = store.cleaner.look_at(log)
    assert not dirty.waits_for_checkpoint
    assert dirty.first_uncleanable_offset == log.segments[-1].base_offset > recovery_point
    store.close()


def test_a_segment_that_ends_where_a_transaction_begins_is_cleaned(base: Path) -> None:
    owner = Owner()
    store = owner.disk(base / "data")
    log = open_log(store)
    put(log, ("k", "1"), ("k", "2"))
    roll(log)
    put(log, ("k", "3"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    roll(log)
    make_durable(owner, store)
    assert log.last_stable_offset == 2
    assert store.cleaner.look_at(log).first_uncleanable_offset == 2
    end_transaction(log, 5, committed=True)
    make_durable(owner, store)
    assert store.cleaner.look_at(log).first_uncleanable_offset == 3
    store.close()


def test_a_cleaned_segment_has_the_aborted_transactions_whose_markers_stay(base: Path) -> None:
    owner = Owner()
    store = owner.disk(base / "data")
    log = open_log(store)
    put(log, ("k", "1"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 5, committed=False)
    roll(log)
    put(log, ("k", "2"))
    clean(owner, store)
    (aborted,) = log.segments[0].aborted.entries
    assert (aborted.producer_id, aborted.first_offset, aborted.last_offset) == (5, 0, 1)
    assert (log.directory / f"{OLD}.txnindex").stat().st_size == 34
    store.close()
