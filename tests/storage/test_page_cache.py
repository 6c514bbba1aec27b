"""
Records that are in the page cache are read without a wait, and those that are not, on another thread.

`preadv` of the test knows which bytes are in the page cache, since file systems for tests often cannot say.
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from errno import EIO, EOPNOTSUPP
from pathlib import Path
from random import Random

import pytest

from kohort.storage.disk.store import DiskStore
from kohort.storage.files import page_cache
from kohort.storage.files.page_cache import READ_BYTES_MAX, read_cached
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.storage.segments.segment_reads import CACHED_READS
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, batch

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="the system has no reads of the page cache alone")


class PageCache:
    """Takes the place of `preadv`: reads what is in the page cache, whose end is `end`, or raises `error`."""

    def __init__(self) -> None:
        self.calls = 0
        self.end = 1 << 40
        self.error: OSError | None = None

    def preadv(self, fd: int, buffers: Sequence[bytearray], position: int, flags: int) -> int:
        assert flags == os.RWF_NOWAIT
        self.calls += 1
        if self.error is not None:
            raise self.error
        (buffer,) = buffers
        data = os.pread(fd, min(len(buffer), max(self.end - position, 0)), position)
        if not data:
            raise BlockingIOError
        buffer[: len(data)] = data
        return len(data)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> PageCache:
    found = PageCache()
    monkeypatch.setattr(os, "preadv", found.preadv)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    store = Owner().disk(tmp_path)
    yield store
    store.close()


def filled(store: DiskStore, batches: int, config: LogConfig | None = None, size: int = 500) -> DiskLog:
    log = store.open(PARTITION, TOPIC_ID, config or LogConfig())
    for number in range(batches):
        log.append(batch(*f"{number} {'x' * size}".split(), "last"), leader_epoch=0)
    store.flush()
    read_on_another_thread(log)
    return log


def read_on_another_thread(log: DiskLog) -> None:
    """The first read from the disk opens the file, which later ones use."""
    view = log.view()
    with ThreadPoolExecutor(1) as thread:
        thread.submit(view.read, 0, bytes_max=1).result()
    view.end()


def test_every_read_of_the_page_cache_equals_one_of_the_disk(store: DiskStore, cache: PageCache, rng: Random) -> None:
    log = filled(store, 200, LogConfig(index_interval_bytes=2000))
    found = 0
    for _ in range(300):
        offset, bytes_max = rng.randrange(log.end_offset + 1), rng.choice((1, 700, 5000, READ_BYTES_MAX))
        up_to = rng.choice((None, rng.randrange(log.end_offset + 1)))
        cached = log.read_cached(offset, bytes_max=bytes_max, up_to=up_to)
        assert cached == log.read(offset, bytes_max=bytes_max, up_to=up_to)
        found += bool(cached)
    assert found > 100
    assert cache.calls > found


@pytest.mark.parametrize("error", [BlockingIOError(), OSError(EOPNOTSUPP, "unsupported"), OSError(EIO, "broken")])
def test_what_the_page_cache_has_not_is_for_another_thread(store: DiskStore, cache: PageCache, error: OSError) -> None:
    log = filled(store, 3)
    cache.error = error
    assert log.read_cached(0, bytes_max=100) is None
    assert log.refusal is None, "the read on the other thread finds out"


def test_a_part_is_not_enough(store: DiskStore, cache: PageCache) -> None:
    log = filled(store, 20)
    cache.end = log.segments[0].size_bytes - 1
    assert log.read_cached(0, bytes_max=1000) == log.read(0, bytes_max=1000)
    assert log.read_cached(0, bytes_max=1 << 17) is None


def test_a_long_read_is_for_another_thread(cache: PageCache, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(READ_BYTES_MAX + 1))
    with path.open("rb") as file:
        assert read_cached(file.fileno(), READ_BYTES_MAX, 1) == bytes(READ_BYTES_MAX)
        assert read_cached(file.fileno(), READ_BYTES_MAX + 1, 0) is None
    assert cache.calls == 1


def test_a_search_without_index_entries_is_for_another_thread(store: DiskStore, cache: PageCache) -> None:
    """A client may set `index.interval.bytes` so that there are none: the walk would go over the whole segment."""
    log = filled(store, 300, LogConfig(index_interval_bytes=(1 << 31) - 1), size=1000)
    assert log.read_cached(log.end_offset - 2, bytes_max=100) is None, "a batch that begins there would be known"
    assert 0 < cache.calls <= CACHED_READS


def test_a_closed_file_is_for_another_thread(store: DiskStore, cache: PageCache) -> None:
    log = filled(store, 3)
    log.segments[0].close()
    assert log.read_cached(0, bytes_max=100) is None
    assert not cache.calls
    read_on_another_thread(log)
    assert log.read_cached(0, bytes_max=100)


def test_the_files_of_a_view_are_bounded_like_all_others(store: DiskStore, cache: PageCache) -> None:
    log = filled(store, 3)
    assert len(log.handles) == 1
    view = log.view()
    view.read(0, bytes_max=1)
    log.delete_before(log.end_offset)
    before = len(os.listdir("/proc/self/fd"))
    log.close("closed")
    view.end()
    assert len(os.listdir("/proc/self/fd")) == before - 2, "of the log and of the view"
    assert not log.handles


def test_a_system_without_such_reads(store: DiskStore, cache: PageCache, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(store, 3)
    assert log.read_cached(0, bytes_max=100)
    monkeypatch.setattr(page_cache, "_NOWAIT", 0)
    assert log.read_cached(0, bytes_max=100) is None
