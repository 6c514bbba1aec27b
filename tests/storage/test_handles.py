"""However many partitions there are, no more files are open than the process may have."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.model.errors import StorageError
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig, TimestampOffset
from kohort.storage.segments.file_handles import FileHandleCache
from tests.conftest import LONG
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch
from tests.storage.test_header_check import COUNT, left_behind, put

PARTITIONS, FILES_MAX = (5000, 1024) if LONG else (300, 150)

LIMITED = """
import os, resource, sys
from pathlib import Path
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig
from tests.storage.owner import TOPIC_ID, Owner, batch

count, limit = int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
partitions = [TopicPartition("t", number) for number in range(count)]
for round_ in range(3):
    owner = Owner()
    store = owner.disk(Path(sys.argv[1]), flush="os", journal_file_bytes=1 << 20)
    logs = [store.open(partition, TOPIC_ID, LogConfig()) for partition in partitions]
    assert {log.end_offset for log in logs} == {round_}
    for number, log in enumerate(logs):
        log.append(batch(f"{round_} of {number}"), leader_epoch=max(log.leader_epoch, 0))
    store.flush()
    for number, log in enumerate(logs):
        for offset in range(round_ + 1):
            assert f"{offset} of {number}".encode() in log.read(offset, bytes_max=1)
    assert len(os.listdir("/proc/self/fd")) < limit
    if round_ == 1:  # the second stop is unclean: the third start reads everything
        for log in logs:
            log.close("the process was killed")
        store._flush_coordinator.stop()
        store._lock.release()
    else:
        store.close()
print("done")
"""


def test_a_directory_of_more_partitions_than_files_starts_serves_and_stops(base: Path) -> None:
    command = [sys.executable, "-c", LIMITED, str(base / "data"), str(PARTITIONS), str(FILES_MAX)]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300, check=False
    )
    assert ended.stdout == "done\n", ended.stderr[-3000:]


class File:
    """One that can be closed."""

    def __init__(self, handles: FileHandleCache) -> None:
        self.handles = handles
        self.was_touched = False
        self.is_open = False

    def touch(self) -> None:
        if self.is_open:
            self.was_touched = True
        else:
            self.is_open = True
            self.handles.add(self)

    def close(self) -> None:
        self.is_open = False
        self.handles.remove(self)


def test_who_was_touched_lately_stays_open() -> None:
    handles = FileHandleCache(4)
    often, *others = files = [File(handles) for _ in range(40)]
    for file in others:
        often.touch()
        file.touch()
        assert often.is_open
        assert file.is_open
        assert len(handles) == sum(file.is_open for file in files) <= 4


@pytest.mark.parametrize("is_sealed", [True, False])
def test_a_segment_that_was_closed_is_opened_again_by_a_read_and_an_append(tmp_path: Path, is_sealed: bool) -> None:
    owner = Owner()
    store = owner.disk(tmp_path)
    store._handles.count_max = 1
    config = LogConfig(segment_bytes=200 if is_sealed else 1 << 20)
    logs = [store.open(TopicPartition("t", number), TOPIC_ID, config) for number in range(3)]
    for number in range(9):
        for log in logs:
            log.append(batch(f"{log.topic_partition} {number}"), leader_epoch=0)
            assert len(store._handles) <= 1
    for offset in range(9):
        for log in logs:
            assert f"{log.topic_partition} {offset}".encode() in log.read(offset, bytes_max=1)
            assert len(store._handles) <= 1
    store.close()
    assert len(store._handles) == 0


def open_below(directory: Path) -> list[str]:
    """The files of a directory that this process has open."""
    found = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [name for name in found if name.startswith(str(directory))]


def test_a_partition_that_is_not_loaded_leaves_no_file_open(base: Path) -> None:
    put(left_behind(base), COUNT - 1, 0, bytes(8))
    store = Owner().disk(base)
    with pytest.raises(StorageError):
        store.open(PARTITION, TOPIC_ID, LogConfig())
    store.close()
    assert open_below(base) == []


def test_the_mapped_indexes_of_a_segment_are_closed_with_its_file(tmp_path: Path) -> None:
    """A mapping keeps a descriptor of its own."""

    def mapped() -> list[str]:
        return [name for name in open_below(tmp_path) if name.endswith("index")]

    owner = Owner()
    config = LogConfig(segment_bytes=300, index_interval_bytes=0)
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, config)
    for number in range(20):
        log.append(batch(f"{number}", timestamp_ms=number), leader_epoch=0)
    store.close()
    store = owner.disk(tmp_path)
    log = store.open(PARTITION, TOPIC_ID, config)
    store._handles.count_max = 2
    for offset in range(20):
        assert f"{offset}".encode() in log.read(offset, bytes_max=1)
        assert log.offset_for_timestamp(offset) == TimestampOffset(offset, offset, 0)
        assert len(mapped()) <= 4
    assert mapped()
    store.close()
    assert not mapped()


NO_DESCRIPTORS = """
import os, resource, sys
from pathlib import Path
from kohort.model.errors import UnavailableError
from kohort.model.ids import TopicPartition
from kohort.storage.log import LogConfig
from tests.storage.compacted import make_durable
from tests.storage.owner import TOPIC_ID, Owner, batch

resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
owner = Owner()
store = owner.disk(Path(sys.argv[1]))
logs = [store.open(TopicPartition("t", number), TOPIC_ID, LogConfig(segment_bytes=250)) for number in range(4)]
for log in logs[:3]:
    log.append(batch("before"), leader_epoch=0)
make_durable(owner, store)
for log in logs[:3]:
    for segment in log.segments:
        segment.close()
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for number in range(12):  # segments roll, indexes and snapshots are written, and checkpoints flush all of it
    for log in logs:
        log.append(batch(f"during {number}"), leader_epoch=0)  # the disk thread has a reserved descriptor
        assert log.read(log.end_offset - 1, bytes_max=1)
        try:
            assert log.read(0, bytes_max=1)
        except UnavailableError as error:
            assert "ulimit -n" in str(error), error
    make_durable(owner, store)
assert store.offline_reason is None
for fd in taken:
    os.close(fd)
for log in logs:
    end_offset = log.end_offset
    assert log.append(batch("after"), leader_epoch=0) == end_offset + 1
    assert b"after" in log.read(end_offset, bytes_max=1)
store.close()
assert (Path(sys.argv[1]) / ".kafka_cleanshutdown").exists()
print("done")
"""


def test_appends_need_no_descriptor_and_reads_that_found_none_are_tried_again(base: Path) -> None:
    """Connections have taken all descriptors. Nothing goes offline, and flushes and checkpoints use the reserve."""
    ended = subprocess.run(
        [sys.executable, "-c", NO_DESCRIPTORS, str(base / "data")],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=120,
        check=False,
    )
    assert ended.stdout == "done\n", ended.stderr[-3000:]
    said = [line for line in ended.stderr.splitlines() if line.startswith("log.no_file_descriptor partition=t-")]
    assert said
    assert len(said) == len(set(said)), "said once, not for each request"


def test_few_files_are_a_share_of_a_small_limit() -> None:
    code = """
import resource
from kohort.storage.segments.file_handles import open_files_max
for limit in (40, 100, 1000):
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, 1000))
    print(open_files_max())
"""
    command = [sys.executable, "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["10", "25", "250"]
