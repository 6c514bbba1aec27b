"""
Any byte of any file may be wrong. A start then ends, or says in a sentence what is wrong; a read gives what was written, or
says that it is damaged; nothing is made up, and no record is skipped without a word because an index is wrong.
"""

import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.model.errors import ConfigError, StorageError, UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batches import BatchRecord, build_batch, check_crc, read_records
from kohort_lab.crashed_disk import Tree, read_tree, write_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.owner import TOPIC_ID, Owner, abandon
from tests.wire.control_batches import control_batch

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=150)
PARTITION = TopicPartition("t", 0)
BATCHES = 40
IN_MEMORY = Path("/dev/shm")
OUTSIDE_THE_CHECKSUM = (".log", "leader-epoch-checkpoint", "log-start-offset-checkpoint", "partition.metadata")
"""Where a flipped bit can say something else that is as good: an offset, an epoch, an owner. Kafka has no checksum there."""


class Directories:
    """The same log, cleanly stopped and killed."""

    def __init__(self, trees: dict[str, Tree]) -> None:
        self.trees = trees


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> Directories:
    found: dict[str, Tree] = {}
    for how in ("stopped", "killed"):
        root = tmp_path_factory.mktemp(how) / "data"
        with FaultyFiles(root):
            owner = Owner()
            store = owner.disk(root)
            log = store.open(PARTITION, TOPIC_ID, CONFIG)
            for number in range(BATCHES):
                append(log, number)
                if number == BATCHES // 2:
                    store.flush()
                    log.delete_before(5)
                    owner.clock.set(owner.clock.now_ms() + 60_000)
                if number % 3 == 0:
                    store.flush()
            store.flush()
            if how == "killed":
                abandon(store)  # a checkpoint would rename and remove files while they are read
            else:
                store.close()
            found[how] = read_tree(root)
    return Directories(found)


def append(log: DiskLog, number: int) -> None:
    """Plain batches, and of a transactional producer that aborts now and then."""
    if number % 8 == 7:
        marker = control_batch(
            producer_id=5, producer_epoch=0, committed=number % 16 == 15, coordinator_epoch=0, timestamp_ms=1000
        )
        log.append(marker, leader_epoch=number // 15)
        return
    is_transactional = number % 4 == 2
    records = [BatchRecord(b"k", f"value {number}".encode(), timestamp_ms=1000 + number)]
    what: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number // 4, "transactional": True}
    log.append(build_batch(records, timestamp_ms=1000, **(what if is_transactional else {})), leader_epoch=number // 15)


DAMAGE = st.tuples(
    st.floats(0, 1, exclude_max=True),  # which file
    st.sampled_from(["flip", "bytes", "cut", "grow", "zeros", "gone"]),
    st.floats(0, 1, exclude_max=True),  # where
    st.integers(0, 1 << 30),
)


def damaged(tree: Tree, damage: tuple[float, str, float, int]) -> tuple[Tree, str]:
    which, how, where, seed = damage
    names = sorted(name for name, content in tree.items() if content)
    name = names[int(which * len(names))]
    content = bytearray(tree[name] or b"")
    if name.endswith(".journal"):
        content = content.rstrip(b"\0")  # behind it nothing is read
    at, chance = int(where * len(content)), Random(seed)
    if how == "flip" and content:
        content[at] ^= 1 << seed % 8
    elif how == "bytes":
        content[at : at + 1 + seed % 40] = chance.randbytes(1 + seed % 40)
    elif how == "cut":
        del content[at:]
    elif how == "grow":
        content += chance.randbytes(1 + seed % 100)
    elif how == "zeros":
        content[at:] = bytes(len(content) - at)
    rest = {other: kept for other, kept in tree.items() if other != name}
    return (rest if how == "gone" else {**tree, name: bytes(content)}), name


@pytest.mark.parametrize("how", ["stopped", "killed"])
@settings(max_examples=3000 if LONG else 100, deadline=None, suppress_health_check=list(HealthCheck))
@given(damage=DAMAGE)
def test_nothing_is_made_up(directories: Directories, how: str, damage: tuple[float, str, float, int]) -> None:
    check(*damaged(directories.trees[how], damage))


def check(tree: Tree, name: str) -> None:
    """Start on it and read everything; `name` is the file that is damaged."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as base:
        root = Path(base) / "data"
        write_tree(root, tree)
        with FaultyFiles(root):
            try:
                store = Owner().disk(root)
            except ConfigError:  # it says what to do, and changes nothing
                return
            try:
                log = store.open(PARTITION, TOPIC_ID, CONFIG)
            except UnavailableError:  # flushed data is missing
                store.close()
                return
            is_exact = not name.endswith(OUTSIDE_THE_CHECKSUM)
            for offset in range(log.end_offset + 1):
                check_read(log, offset, is_exact=is_exact)
            for timestamp_ms in (0, 1010, 1030, 5000):
                refused_or(partial(log.offset_for_timestamp, timestamp_ms))
            store.close()
        shutil.rmtree(root)


def check_read(log: DiskLog, offset: int, *, is_exact: bool) -> None:
    data = b""
    for bytes_max in (1, 400):
        try:
            data = log.read(offset, bytes_max=bytes_max)
            log.aborted_transactions(offset, data)
        except StorageError:
            continue
        for number, value in values_of(data):
            assert value == f"value {number}", "a record that was never written there"
        if data and is_exact:
            first = next(iter_spans(data))
            assert first[2] <= offset <= first[3], f"offset {offset} was asked for, {first[2]} was given"


def values_of(data: bytes) -> Iterator[tuple[int, str]]:
    """Number and value of the batches whose checksum is right: any client refuses the others."""
    try:
        spans = list(iter_spans(data))
    except StorageError:
        return
    for start, size, *_ in spans:
        batch = data[start : start + size]
        if check_crc(batch) and not batch[22] & 0x20:
            for record in read_records(batch):
                assert record.value is not None
                yield record.timestamp - 1000, record.value.decode()


def refused_or(action: Callable[[], object]) -> None:
    with suppress(StorageError):
        action()


def test_an_index_entry_that_points_elsewhere_skips_nothing(directories: Directories, base: Path) -> None:
    """Each entry of a sealed segment's index in turn, its offset and its position wrong but plausible."""
    tree, name = directories.trees["stopped"], "t-0/00000000000000000015.index"
    entries = list(struct.iter_unpack(">ii", tree[name] or b""))
    for place, (relative, position) in enumerate(entries):
        for entry in (
            (relative - 1, position),
            (relative + 1, position),
            (relative, position - 1),
            (relative, position + 1),
        ):
            wrong = [*entries[:place], entry, *entries[place + 1 :]]
            write_tree(base / "data", {**tree, name: b"".join(struct.pack(">ii", *it) for it in wrong)})
            with FaultyFiles(base / "data"):
                store = Owner().disk(base / "data")
                log = store.open(PARTITION, TOPIC_ID, CONFIG)
                for offset in range(log.log_start_offset, log.end_offset):
                    for up_to in (offset + 1, offset + 3, log.end_offset):
                        spans = list(iter_spans(log.read(offset, bytes_max=500, up_to=up_to)))
                        assert spans[0][2] == offset
                        assert spans[-1][3] < up_to
                store.close()
            shutil.rmtree(base / "data")
