"""Who waits for a flush: the owner where that is quick and nothing else is under way; the thread flushes always."""

import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from itertools import product, repeat
from pathlib import Path
from queue import SimpleQueue

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.durability.flush_coordinator import BULK_BYTES, EARLY_BYTES
from kohort.storage.durability.flusher import FlushBatch, Flusher
from kohort.storage.durability.journal import Journal, journal_files
from kohort.storage.files.journal_format import APPEND, BATCH, entry_prefix, pack_length, read_journal
from kohort.storage.log import LogConfig
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import read_records
from kohort_lab.faulty_files import FaultyFiles
from tests.storage.owner import TOPIC_ID, Owner, batch

PARTITIONS = [TopicPartition("t", partition) for partition in range(2)]
LONG_WAIT_MS = 120_000
"""So long that a busy machine does not end the wait of the owner."""


class Disk:
    """Remembers which thread asked for each flush."""

    def __init__(self) -> None:
        self.threads: list[str] = []

    def __call__(self, fd: int) -> None:
        self.threads.append(threading.current_thread().name)
        os.fdatasync(fd)


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_the_owner_acknowledges_in_the_turn_of_the_append(tmp_path: Path, flush: str) -> None:
    owner, disk = Owner(), Disk()
    store = owner.disk(tmp_path, sync=disk, flush=flush, owner_flush_ms_max=math.inf, owner_wait_ms=LONG_WAIT_MS)
    logs = [store.open(partition, TOPIC_ID, LogConfig()) for partition in PARTITIONS]
    for log in logs:
        log.append(batch("a"), leader_epoch=0)
    assert [log.high_watermark for log in logs] == [0, 0]
    owner.run_turn()
    assert [log.high_watermark for log in logs] == [1, 1]
    assert disk.threads == (["kohort-flusher"] if flush == "commit" else []), "the owner makes no call itself"
    store.close()


def test_bulk_is_flushed_by_the_thread(tmp_path: Path) -> None:
    owner, disk = Owner(), Disk()
    store = owner.disk(tmp_path, sync=disk, owner_flush_ms_max=math.inf)
    log = store.open(PARTITIONS[0], TOPIC_ID, LogConfig())
    log.append(batch("x" * BULK_BYTES), leader_epoch=0)
    owner.wait_for(lambda: log.high_watermark == 1)
    assert set(disk.threads) == {"kohort-flusher"}
    store.close()


def test_while_a_checkpoint_is_at_the_disk_the_thread_flushes(base: Path) -> None:
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data", owner_flush_ms_max=math.inf)
        log = store.open(PARTITIONS[0], TOPIC_ID, LogConfig())
        log.append(batch("a"), leader_epoch=0)
        files.hold("kohort-storage")
        owner.clock.set(owner.clock.now_ms() + 60_000)
        owner.run_turn()
        files.await_held()
        owner.wait_for(lambda: log.high_watermark == 1)
        files.hold("kohort-flusher")
        log.append(batch("b"), leader_epoch=0)
        owner.run_turn()
        files.await_held()
        assert log.high_watermark == 1
        files.release("kohort-flusher")
        owner.wait_for(lambda: log.high_watermark == 2)
        files.release("kohort-storage")
        store.close()


def test_answers_that_bring_on_appends_do_not_keep_the_owner_from_his_loop(tmp_path: Path) -> None:
    """In one turn he waits for some rounds; then he goes on, until the loop has asked for input."""
    owner, disk = Owner(), Disk()
    store = owner.disk(tmp_path, sync=disk, owner_flush_ms_max=math.inf, owner_wait_ms=LONG_WAIT_MS)
    log = store.open(PARTITIONS[0], TOPIC_ID, LogConfig())
    rounds = 40

    def go_on(high_watermark: int) -> None:
        if high_watermark < rounds:
            owner.defer(append)

    def append() -> None:
        log.append(batch("a"), leader_epoch=0)

    log.add_listener(go_on)
    append()
    owner.run_turn()
    assert 1 < log.high_watermark < rounds
    owner.wait_for(lambda: log.high_watermark == rounds)
    store.close()


@pytest.mark.parametrize("batches", [1, 5])
def test_much_in_one_turn_is_flushed_before_the_turn_has_ended(base: Path, batches: int) -> None:
    """The owner goes on while the thread writes what there is so far; the rest follows at the end of the turn."""
    with FaultyFiles(base / "data") as files:
        owner = Owner()
        store = owner.disk(base / "data")
        logs = [store.open(TopicPartition("t", number), TOPIC_ID, LogConfig()) for number in range(16)]
        files.hold("kohort-flusher")
        values = ["x" * (EARLY_BYTES // 12) + str(number) for number in range(batches)]
        for value in values:
            for log in logs:
                log.append(batch(value), leader_epoch=0)
        files.await_held()
        assert [log.high_watermark for log in logs] == [0] * 16
        files.release("kohort-flusher")
        owner.wait_for(lambda: [log.high_watermark for log in logs] == [batches] * 16)
        shutil.copytree(base / "data", base / "killed")
        store.close()
    if batches == 1:  # all of it went through the journal
        for path in (base / "killed").glob("t-*/*.log"):
            path.write_bytes(b"")
    store = Owner().disk(base / "killed")
    for log in logs:
        found = store.open(log.topic_partition, TOPIC_ID, LogConfig())
        data = [found.read(offset, bytes_max=1) for offset in range(batches)]
        assert [read_records(it)[0].value for it in data] == [value.encode() for value in values]
    store.close()


def test_the_journal_is_bounded_where_each_turn_is_flushed_before_its_end(tmp_path: Path) -> None:
    """Nothing is left of such a turn at its end, and a checkpoint is due all the same."""
    file_bytes, turns = EARLY_BYTES, 20
    owner = Owner()
    store = owner.disk(tmp_path, journal_file_bytes=file_bytes)
    logs = [store.open(TopicPartition("t", number), TOPIC_ID, LogConfig()) for number in range(16)]
    for _ in range(turns):
        for log in logs:
            log.append(batch("x" * (EARLY_BYTES // 16)), leader_epoch=0)
        owner.wait_for(lambda: all(log.high_watermark == log.end_offset for log in logs))
    longest = max(path.stat().st_size for path in (tmp_path / "journal").iterdir())
    assert longest <= 5 * (file_bytes + EARLY_BYTES // 2)
    store.close()


def a_flusher(
    path: Path,
    sync: Callable[[int], None],
    *,
    done: Callable[[object], None] = lambda _: None,
    failed: Callable[[Exception], None] = lambda _: None,
    post: Callable[[], None] = lambda: None,
    owner_flush_ms_max: float = math.inf,
    now: Callable[[], float] = time.perf_counter,
) -> Flusher[str]:
    return Flusher(
        Journal(path / "journal", file_bytes=1 << 16, sync=sync),
        on_written=lambda _: None,
        on_done=done,
        on_log_failed=lambda _log, _exc: None,
        on_failed=failed,
        post=post,
        sync_files=lambda _: None,
        entry_prefix_of=str.encode,
        owner_flush_ms_max=owner_flush_ms_max,
        now=now,
    )


def a_round() -> FlushBatch[str]:
    round_: FlushBatch[str] = FlushBatch()
    round_.entries += entry_prefix(PARTITIONS[0], TOPIC_ID, APPEND) + pack_length(0)
    return round_


def test_the_owner_waits_while_the_disk_is_quick(tmp_path: Path) -> None:
    """As soon as the disk is slow he is called back; the thread goes on taking the time."""
    now = 0.0
    takes_ms: Iterator[float] = repeat(0.1)

    def sync(_fd: int) -> None:
        nonlocal now
        now += next(takes_ms) / 1000

    posted: SimpleQueue[None] = SimpleQueue()
    flusher = a_flusher(tmp_path, sync, post=lambda: posted.put(None), owner_flush_ms_max=0.5, now=lambda: now)

    def flush() -> str:
        if flusher.may_owner_wait:
            flusher.hand_over(a_round(), wait_ms=LONG_WAIT_MS)
            assert flusher.is_idle
            assert posted.empty(), "nobody is called back who waited"
            return "waits"
        flusher.hand_over(a_round())
        posted.get(timeout=120)
        flusher.wait()
        return "is called"

    def flushed_by(count: int) -> set[str]:
        return {flush() for _ in range(count)}

    assert flush() == "is called", "how quick the disk is has to be found out"
    assert flushed_by(10) == {"waits"}
    takes_ms = iter([20.0, *[0.1] * 1000])
    assert flush() == "waits"
    assert flush() == "is called"
    flushed_by(50)
    assert flushed_by(10) == {"waits"}
    takes_ms = repeat(8.0)
    flush()
    assert flushed_by(100) == {"is called"}
    flusher.stop()


def test_the_owner_waits_shortly_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """He is called back when it answers, and waits again for later flushes."""
    gate, posted, begun = threading.Event(), threading.Event(), threading.Event()
    gate.set()

    def sync(_fd: int) -> None:
        begun.set()
        assert gate.wait(120)

    done: list[object] = []
    flusher = a_flusher(tmp_path, sync, done=done.append, post=posted.set)
    flusher.hand_over(a_round())
    assert posted.wait(120)
    posted.clear()
    gate.clear()
    flusher.wait()
    begun.clear()
    flusher.hand_over(a_round(), wait_ms=1)
    assert len(done) == 1
    assert begun.wait(120), "a round that waits would take in the next one"
    assert not flusher.may_owner_wait
    flusher.hand_over(a_round())
    gate.set()
    assert posted.wait(120)
    flusher.wait()
    assert len(done) == 3
    posted.clear()
    flusher.hand_over(a_round(), wait_ms=LONG_WAIT_MS)
    assert (len(done), posted.is_set()) == (4, False)
    flusher.stop()


@pytest.mark.parametrize("kinds", list(product(("copied", "whole", "apart"), repeat=3)))
def test_rounds_that_waited_together_are_one_round(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    """Whether their batches were copied into them, lie beside them, or lie there without their headers."""
    contents = [bytes(batch(kind * 3)) for kind in kinds]
    rounds: list[FlushBatch[str]] = []
    for kind, content in zip(kinds, contents, strict=True):
        round_: FlushBatch[str] = FlushBatch()
        round_.entries += entry_prefix(PARTITIONS[0], TOPIC_ID, BATCH if kind == "apart" else APPEND)
        round_.entries += pack_length(len(content))
        if kind == "copied":
            round_.entries += content
        elif kind == "whole":
            round_.add_piece(content, is_covered=True)
        else:
            round_.entries += content[:HEADER_BYTES]
            round_.add_piece(memoryview(content)[HEADER_BYTES:], is_covered=False)
        rounds.append(round_)
    first, *later = rounds
    for round_ in later:
        first.merge(round_)
    journal = Journal(tmp_path / "journal", file_bytes=1 << 16, sync=os.fdatasync)
    journal.write([*first.pieces, first.entries], [*first.covered, first.entries])
    journal.close()
    assert [entry.content for entry in read_journal(journal_files(tmp_path / "journal"))] == contents


def test_after_a_failed_flush_nobody_may(tmp_path: Path) -> None:
    """The owner does not wait for ever, and nothing is flushed afterwards."""

    def sync(_fd: int) -> None:
        raise OSError("the disk is gone")

    failed: list[Exception] = []
    done: list[object] = []
    flusher = a_flusher(tmp_path, sync, done=done.append, failed=failed.append)
    flusher.hand_over(a_round(), wait_ms=LONG_WAIT_MS)
    assert [str(exc) for exc in failed] == ["the disk is gone"]
    assert not flusher.may_owner_wait
    flusher.hand_over(a_round(), wait_ms=LONG_WAIT_MS)
    flusher.wait()
    flusher.stop()
    assert (len(failed), done) == (1, [])
