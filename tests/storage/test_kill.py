"""A process that is killed while it appends: everything that it was told is durable is there afterwards."""

import subprocess
import sys
from pathlib import Path

from kohort.storage.batchset import iter_spans
from kohort.wire.batches import read_records
from tests.conftest import LONG
from tests.storage.owner import Owner

ROUNDS = 60 if LONG else 4
ACKNOWLEDGED = 3000 if LONG else 300
"""How much a process is let do before it is killed."""

WRITER = """
import sys
from pathlib import Path
from tests.storage.owner import TOPIC_ID, Owner, batch
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig

owner = Owner()
store = owner.disk(Path(sys.argv[1]), journal_file_bytes=20_000)
logs = [store.open(TopicPartition("t", partition), TOPIC_ID, LogConfig(segment_bytes=3000)) for partition in range(5)]
for partition, log in enumerate(logs):
    log.add_listener(lambda high_watermark, partition=partition: print(partition, high_watermark, flush=True))
while True:
    for partition, log in enumerate(logs):
        large = "x" * 300_000 if log.end_offset % 50 == 7 else ""
        log.config = LogConfig(segment_bytes=400_000 if large else 3000)
        log.append(batch(f"{partition} {log.end_offset} {large}"), leader_epoch=0)
    owner.run_turn()
    owner.run_posted()
"""


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    acknowledged = [0] * 5
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
                break  # it was killed in the middle of saying so
            partition, high_watermark = map(int, line.split())
            acknowledged[partition] = max(acknowledged[partition], high_watermark)
            if sum(acknowledged) >= before + ACKNOWLEDGED:
                process.kill()
        process.wait()
        check(tmp_path, acknowledged)


def check(data_dir: Path, acknowledged: list[int]) -> None:
    store = Owner().disk(data_dir)
    for topic_partition in store.partitions():
        log = store.get(topic_partition)
        assert log is not None
        assert log.end_offset >= acknowledged[topic_partition.partition]
        offset = 0
        while data := log.read(offset, bytes_max=1 << 20):
            for start, size, *_ in iter_spans(data):
                (record,) = read_records(data[start : start + size])
                assert record.value is not None
                assert record.value.startswith(f"{topic_partition.partition} {offset} ".encode())
                offset += 1
        assert offset == log.end_offset
    assert len(list(store.partitions())) == 5
    store.close()
