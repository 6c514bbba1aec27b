"""A process that is killed while it appends: every acknowledged batch is in the log of the next start."""

import subprocess
import sys
from pathlib import Path

from kohort.model.ids import TopicPartition
from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batches import BatchRecord, build_batch, read_header, read_records
from tests.conftest import LONG
from tests.storage.listed import ListedBatch, ListedLog
from tests.storage.owner import Owner
from tests.storage.read_committed import committed_records
from tests.wire.control_batches import control_batch

ROUNDS = 60 if LONG else 4
ACKNOWLEDGED = 3000 if LONG else 300
"""How many batches a process gets acknowledged before it is killed."""
PARTITIONS = 6
TRANSACTIONAL = TopicPartition("t", 5)
"""The partition of transactions; the other ones hold plain data."""

_CYCLE: tuple[tuple[int, bool | None], ...] = (
    *((1, None), (2, None), (1, False), (2, None), (3, None), (2, True), (1, None), (3, False), (1, False), (2, None)),
    (2, False),
)
"""Producer and, of a marker, whether it commits: the batch at an offset follows from the offset."""

WRITER = """
import sys
from pathlib import Path
from tests.storage.owner import TOPIC_ID, Owner, batch
from tests.storage.test_kill import PARTITIONS, TRANSACTIONAL, transactional_batch
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig

owner = Owner()
store = owner.disk(Path(sys.argv[1]), journal_file_bytes=20_000)
config = LogConfig(segment_bytes=3000)
logs = [store.open(TopicPartition("t", partition), TOPIC_ID, config) for partition in range(PARTITIONS)]
for partition, log in enumerate(logs):
    log.add_listener(lambda high_watermark, partition=partition: print(partition, high_watermark, flush=True))
while True:
    for partition, log in enumerate(logs):
        if partition == TRANSACTIONAL.partition:
            log.append(transactional_batch(log.end_offset), leader_epoch=0)
            continue
        large = "x" * 300_000 if log.end_offset % 50 == 7 else ""
        log.config = LogConfig(segment_bytes=400_000 if large else 3000)
        log.append(batch(f"{partition} {log.end_offset} {large}"), leader_epoch=0)
    owner.run_turn()
    owner.run_posted()
"""


def transactional_batch(offset: int) -> bytes:
    """The batch of the transactional partition at an offset."""
    producer_id, committed = _CYCLE[offset % len(_CYCLE)]
    if committed is not None:
        return control_batch(
            producer_id=producer_id, producer_epoch=0, committed=committed, coordinator_epoch=0, timestamp_ms=1000
        )
    return build_batch(
        [BatchRecord(None, f"{TRANSACTIONAL.partition} {offset} ".encode())],
        timestamp_ms=1000,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=offset,
        transactional=True,
    )


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    acknowledged = [0] * PARTITIONS
    for _ in range(ROUNDS):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        before = sum(acknowledged)
        for line in process.stdout:
            if not line.endswith("\n"):
                break  # the process was killed while it wrote the line
            partition, high_watermark = map(int, line.split())
            acknowledged[partition] = max(acknowledged[partition], high_watermark)
            if sum(acknowledged) >= before + ACKNOWLEDGED:
                process.kill()
        process.wait()
        check(tmp_path, acknowledged)


def check(data_dir: Path, acknowledged: list[int]) -> None:
    store = Owner().disk(data_dir)
    assert len(list(store.partitions())) == PARTITIONS
    for topic_partition in store.partitions():
        log = find(store, topic_partition)
        assert log.end_offset >= acknowledged[topic_partition.partition]
        offset = 0
        while data := log.read(offset, bytes_max=1 << 20):
            for start, size, *_ in iter_spans(data):
                (record,) = read_records(data[start : start + size])
                if not read_header(data, start).is_control:
                    assert record.value is not None
                    assert record.value.startswith(f"{topic_partition.partition} {offset} ".encode())
                offset += 1
        assert offset == log.end_offset
    check_transactions(find(store, TRANSACTIONAL))
    store.close()


def find(store: DiskStore, topic_partition: TopicPartition) -> DiskLog:
    log = store.get(topic_partition)
    assert log is not None
    return log


def check_transactions(log: DiskLog) -> None:
    """The last stable offset, and the records that a reader with `read_committed` is given."""
    model = ListedLog()
    for offset in range(log.end_offset):
        producer_id, committed = _CYCLE[offset % len(_CYCLE)]
        model.batches.append(ListedBatch(offset, offset, [], producer_id, is_transactional=True, committed=committed))
    stable = model.stable_end(log.end_offset)
    assert log.last_stable_offset == stable
    found, offset = [], 0
    while offset < stable and (data := log.read(offset, bytes_max=1000, up_to=stable)):
        aborted = [(entry.producer_id, entry.first_offset) for entry in log.aborted_transactions(offset, data)]
        found += [record.offset for record in committed_records(data, aborted)]
        offset = [span[3] + 1 for span in iter_spans(data)][-1]
    dropped = {
        it for producer_id, first, last in model.aborted() for it in range(first, last) if owner_of(it) == producer_id
    }
    wanted = [batch.base_offset for batch in model.batches[:stable] if batch.is_data]
    assert found == [offset for offset in wanted if offset not in dropped]


def owner_of(offset: int) -> int:
    return _CYCLE[offset % len(_CYCLE)][0]
