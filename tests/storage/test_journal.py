"""The journal: what was written whole comes back in order, and nothing else does."""

import os
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.model.errors import CorruptError
from kohort.model.ids import TopicPartition
from kohort.storage.durability.journal import Journal, journal_files
from kohort.storage.files import syscalls
from kohort.storage.files.journal_format import (
    APPEND,
    BATCH,
    DELETE,
    EPOCH,
    FRAME_HEADER_BYTES,
    START,
    JournalEntry,
    entry_prefix,
    pack_length,
    read_journal,
)
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.crashed_disk import Wrote
from kohort_lab.faulty_files import FaultyFiles

NAMES = st.sampled_from(
    [TopicPartition("a", 0), TopicPartition("b.c_d-e", 49), TopicPartition("__consumer_offsets", 3)]
)
ENTRIES = st.one_of(
    st.builds(JournalEntry, st.just(APPEND), NAMES, st.uuids(), st.binary(max_size=40)),
    st.builds(JournalEntry, st.just(DELETE), NAMES, st.uuids(), st.just(b"")),
    st.builds(JournalEntry, st.just(START), NAMES, st.uuids(), st.binary(min_size=8, max_size=8)),
)
ROUNDS = st.lists(st.tuples(st.lists(ENTRIES, min_size=1, max_size=4), st.booleans()), max_size=8)


def encode(entries: list[JournalEntry]) -> bytearray:
    data = bytearray(FRAME_HEADER_BYTES)
    for entry in entries:
        data += entry_prefix(entry.topic_partition, entry.topic_id, entry.kind)
        data += pack_length(len(entry.content)) + entry.content
    return data


STRANGE = [
    JournalEntry(START, TopicPartition("a", 0), UUID(int=1), b"short"),
    JournalEntry(EPOCH, TopicPartition("a", 0), UUID(int=1), b"short"),
    JournalEntry(DELETE, TopicPartition("a", 0), UUID(int=1), b"not empty"),
    JournalEntry(APPEND, TopicPartition("../a", 0), UUID(int=1), b"x"),
    JournalEntry(APPEND, TopicPartition("a", -1), UUID(int=1), b"x"),
]


@pytest.mark.parametrize("strange", STRANGE)
def test_an_entry_that_is_none_ends_its_round(tmp_path: Path, strange: JournalEntry) -> None:
    """Its checksum is right: it is of another version's making."""
    good = JournalEntry(APPEND, TopicPartition("a", 0), UUID(int=1), b"x")
    written = journal(tmp_path)
    written.write([encode([good, strange, good])])
    written.close()
    assert list(read_journal(journal_files(tmp_path / "journal"))) == [good]


def journal(directory: Path) -> Journal:
    return Journal(directory / "journal", file_bytes=4096, sync=syscalls.data_sync)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None, max_examples=50
)
@given(rounds=ROUNDS)
def test_the_rounds_of_the_two_newest_files_come_back_in_order(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[tuple[list[JournalEntry], bool]]
) -> None:
    directory = tmp_path_factory.mktemp("data")
    written = journal(directory)
    files: list[list[JournalEntry]] = [[]]
    for entries, is_switched in rounds:
        if is_switched:
            written.switch()
            files.append([])
        written.write([encode(entries)])
        files[-1] += entries
    written.close()
    assert list(read_journal(journal_files(directory / "journal"))) == [entry for file in files[-2:] for entry in file]


@given(cuts=st.lists(st.integers(FRAME_HEADER_BYTES, 400), max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
def test_a_round_in_pieces_is_written_as_one_in_whole(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    entries = [JournalEntry(APPEND, TopicPartition("a", number), UUID(int=number), bytes(60)) for number in range(4)]
    whole = encode(entries)
    bounds = [0, *sorted(cuts), len(whole)]
    pieces = [whole[begin:end] for begin, end in pairwise(bounds)]
    contents = []
    for parts in ([bytearray(whole)], pieces):
        directory = tmp_path_factory.mktemp("data")
        written = journal(directory)
        written.write(parts)
        assert written.position == len(whole)
        written.close()
        (path,) = journal_files(directory / "journal")
        contents.append(path.read_bytes())
        assert list(read_journal([path])) == entries
    assert contents[0] == contents[1]


def test_a_flipped_bit_is_a_torn_end_only_in_the_last_frame(tmp_path: Path) -> None:
    """A frame is written when the frame before it is flushed, so a damaged one before another was acknowledged."""
    written = journal(tmp_path)
    rounds = [[JournalEntry(APPEND, TopicPartition("a", number), UUID(int=number), b"batches")] for number in range(3)]
    ends = []
    for entries in rounds:
        written.write([encode(entries)])
        ends.append(written.position)
    written.close()
    (path,) = journal_files(tmp_path / "journal")
    content = path.read_bytes()
    for position in range(ends[0], ends[2]):
        path.write_bytes(content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :])
        if position < ends[1]:
            with pytest.raises(CorruptError, match=f"damaged at byte {ends[0]}"):
                list(read_journal([path]))
        else:
            assert list(read_journal([path])) == rounds[0] + rounds[1]


def batch_of(number: int) -> JournalEntry:
    batch = build_batch([BatchRecord(b"key", bytes([number]) * 50)], timestamp_ms=number)
    return JournalEntry(APPEND, TopicPartition("a", number), UUID(int=number), batch)


def write_apart(written: Journal, entries: list[JournalEntry]) -> None:
    """One round, in which the records of every other entry lie beside the rest and have their own checksum alone."""
    pieces: list[bytearray | memoryview] = []
    covered: list[bytearray | memoryview] = []
    head = bytearray(FRAME_HEADER_BYTES)
    for place, entry in enumerate(entries):
        is_apart = place % 2 == 0
        head += entry_prefix(entry.topic_partition, entry.topic_id, BATCH if is_apart else APPEND)
        head += pack_length(len(entry.content))
        if is_apart:
            head += entry.content[:HEADER_BYTES]
            pieces += (head, memoryview(entry.content)[HEADER_BYTES:])
            covered.append(head)
            head = bytearray()
        else:
            head += entry.content
    written.write([*pieces, head], [*covered, head])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_every_flipped_bit_of_a_round_of_batches_is_found(tmp_path: Path, count: int) -> None:
    """Also one in the records, which only their batch's own checksum covers."""
    written = journal(tmp_path)
    rounds = [[batch_of(3 * place + number) for number in range(count)] for place in range(3)]
    ends = []
    for entries in rounds:
        write_apart(written, entries)
        ends.append(written.position)
    written.close()
    (path,) = journal_files(tmp_path / "journal")
    content = path.read_bytes()
    assert list(read_journal([path])) == [entry for entries in rounds for entry in entries]
    for position in range(ends[1], ends[2]):
        for bit in (1, 128):
            path.write_bytes(content[:position] + bytes([content[position] ^ bit]) + content[position + 1 :])
            assert list(read_journal([path])) == rounds[0] + rounds[1]


def test_records_that_did_not_reach_the_disk_end_the_journal(tmp_path: Path) -> None:
    """What lies there instead may be an older batch, as whole as the one that was meant."""
    written = journal(tmp_path)
    write_apart(written, [batch_of(0)])
    end = written.position
    write_apart(written, [batch_of(1)])
    written.close()
    (path,) = journal_files(tmp_path / "journal")
    content = path.read_bytes()
    records = len(batch_of(1).content) - HEADER_BYTES
    older = content[end - records : end]
    for instead in (bytes(records), older, older[: records // 2] + content[2 * end - records // 2 : 2 * end]):
        path.write_bytes(content[: 2 * end - records] + instead + content[2 * end :])
        assert list(read_journal([path])) == [batch_of(0)]


def test_rounds_of_an_earlier_use_of_the_file_are_not_read(tmp_path: Path) -> None:
    """All rounds are of one size, so that old ones begin exactly where the new ones end."""
    written = journal(tmp_path)
    entries = [JournalEntry(APPEND, TopicPartition("a", number), UUID(int=number), b"batches") for number in range(5)]
    for number, entry in enumerate(entries):
        if number > 2:
            written.switch()
        written.write([encode([entry])])
    written.close()
    assert list(read_journal(journal_files(tmp_path / "journal"))) == entries[3:]


def test_a_file_is_made_in_its_full_size(tmp_path: Path) -> None:
    written = journal(tmp_path)
    written.write([encode([JournalEntry(APPEND, TopicPartition("a", 0), UUID(int=1), b"batches")])])
    written.close()
    assert [path.stat().st_size for path in journal_files(tmp_path / "journal")] == [4096]


def test_a_file_is_filled_a_step_ahead_of_its_rounds_in_its_first_use_alone(tmp_path: Path) -> None:
    """A flush of what was written to before is quicker."""
    entries = encode([JournalEntry(APPEND, TopicPartition("a", 0), UUID(int=1), bytes(20))])
    size, step = len(entries), 4096 // 64
    with FaultyFiles(tmp_path) as files:
        written = journal(tmp_path)
        uses = [use_of_a_file(files, written, entries) for _ in range(4)]
        written.close()
    per_use = 4096 // size
    for first in uses[:2]:
        rounds = [(position, data) for position, data in first if any(data)]
        zeros = [(position, len(data)) for position, data in first if not any(data)]
        assert [position for position, _ in rounds] == [size * number for number in range(per_use)]
        assert zeros[0] == (size, step)
        assert all(position + length <= 4096 for position, length in zeros)
        reached = 0
        for position, data in first:
            assert position <= reached or not any(data) or reached == 0, "a round begins in what is filled"
            reached = max(reached, position + len(data))
    for forgotten, *later in uses[2:]:
        assert forgotten == (0, bytes(FRAME_HEADER_BYTES)), "the old rounds are made unreadable first"
        assert len(later) == per_use


def use_of_a_file(files: FaultyFiles, written: Journal, entries: bytearray) -> list[tuple[int, bytes]]:
    """Where and what is written to a file until it is full."""
    before = len(files.operations)
    while written.position + len(entries) <= 4096:
        written.write([bytearray(entries)])
    written.switch()
    written_parts = [it for it in files.operations[before:] if isinstance(it, Wrote)]
    return [(it.position, it.data) for it in written_parts if it.node == written_parts[-1].node]


def test_no_files_no_entries(tmp_path: Path) -> None:
    assert list(read_journal(journal_files(tmp_path / "journal"))) == []


@pytest.mark.parametrize("first_bytes_lost", [True, False])
def test_a_torn_first_frame_of_a_file_that_is_used_again_leaves_no_damaged_journal(
    tmp_path: Path, first_bytes_lost: bool
) -> None:
    """The frame is written over several old ones, and the power goes: of its bytes any part may be on the disk."""
    entry = JournalEntry(APPEND, TopicPartition("a", 0), UUID(int=1), b"x" * 10)
    durable: dict[int, bytes] = {}
    before: list[bytes] = []

    def sync(fd: int) -> None:
        size = os.fstat(fd).st_size
        before[:] = [durable.get(fd, bytes(size))]
        durable[fd] = os.pread(fd, size, 0)

    written = Journal(tmp_path / "journal", file_bytes=4096, sync=sync)
    for _ in range(5):
        written.write([encode([entry])])
    written.switch()
    written.write([encode([entry])])
    written.switch()
    written.write([encode([entry, entry])])
    frame = bytes(written.position)
    path = tmp_path / "journal" / "1.journal"
    found, old = path.read_bytes(), before[0]
    hole = len(encode([entry])) + 5
    assert hole < len(frame)
    torn = old[:hole] + found[hole:] if first_bytes_lost else found[:hole] + old[hole:]
    path.write_bytes(torn)
    written.close()
    assert list(read_journal(journal_files(tmp_path / "journal"))) == [entry]
