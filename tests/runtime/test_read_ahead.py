"""A load of a log that waits for another machine reads it elsewhere, and holds up nobody."""

from collections.abc import Callable

import pytest

from kohort.runtime.loading import loader
from kohort.runtime.loading.ahead import read_ahead
from kohort.runtime.processors import InlineProcessor
from kohort.runtime.states import State
from kohort.testing import FaultyLog
from kohort.wire.batches import iter_batches
from tests.runtime.harness import Bench, batch_of
from tests.runtime.shards import Put, PutSerde

BATCHES = 7
READS = [0, 3, 6]
"""The batches that reads begin with."""


class FarLog(FaultyLog):
    """A view answers with three batches at most; the log itself is not to be read."""

    def __init__(self, topic: str = "state", partition: int = 0, *, batch_bytes_max: int = 1_048_588) -> None:
        super().__init__(topic, partition, batch_bytes_max=batch_bytes_max)
        self.asked: list[int] = []
        self.failures: list[Exception] = []

    def load_view(self) -> "FarLog":
        return self

    def read(self, offset: int, *, bytes_max: int, up_to: int | None = None) -> bytes:
        raise AssertionError(f"offset {offset} is read on the thread that serves clients")

    def read_on(self, offset: int, bytes_max: int, up_to: int) -> tuple[bytes, int]:
        self.asked.append(offset)
        if self.failures:
            raise self.failures.pop()
        data = super().read(offset, bytes_max=3 * len(self.batches[0]), up_to=up_to)
        return data, max((header.next_offset for _, header in iter_batches(data)), default=up_to)


class Far:
    """A load whose reads are done when the test wants it."""

    def __init__(self, records_per_batch: int = 1) -> None:
        self.tasks: list[Callable[[], None]] = []
        self.begun_at: list[dict[str, int]] = []
        """The table when each read began."""
        self.bench = Bench(log_kind=FarLog, background=self.begin)
        log = self.bench.log
        assert isinstance(log, FarLog)
        self.log = log
        for number in range(100, 100 + BATCHES):
            puts = [PutSerde().encode(Put("ab"[number % 2], number))] * records_per_batch
            log.append(batch_of(puts), leader_epoch=0)
        log.commit()
        self.bench.load()

    def begin(self, task: Callable[[], None]) -> None:
        self.tasks.append(task)
        self.begun_at.append(self.table)

    def read(self) -> None:
        self.tasks.pop(0)()
        self.bench.node.settle()

    @property
    def table(self) -> dict[str, int]:
        return dict(self.bench.shards[0].table)


LOADED = {"a": 106, "b": 105}
"""The newest of each key."""


def test_a_load_waits_for_its_reads_and_others_do_not() -> None:
    far = Far()
    assert far.bench.state() is State.LOADING, "and its turns have ended: it does not ask again and again"
    far.bench.load(1)
    assert far.bench.runtime.states()[1] is State.ACTIVE
    while far.tasks:
        far.read()
    assert (far.bench.state(), far.table) == (State.ACTIVE, LOADED)


@pytest.mark.parametrize("records", [1, 2_000], ids=["plain", "with numpy"])
def test_a_read_begins_before_what_the_one_before_has_found_is_replayed(records: int) -> None:
    loader._import()
    far = Far(records)
    while far.tasks:
        assert len(far.tasks) == 1
        far.read()
    assert far.begun_at[:2] == [{}, {}]
    assert far.log.asked == [each * records for each in READS], "nothing is read twice"
    assert far.table == LOADED


def test_a_load_whose_read_fails_begins_anew(caplog: pytest.LogCaptureFixture) -> None:
    far = Far()
    far.log.failures = [OSError("no route to host")]
    far.read()
    assert far.bench.state() is State.FAILED
    assert "state-0 cannot be read: no route to host" in caplog.text
    assert "Traceback" not in caplog.text
    far.bench.node.advance(500)
    while far.tasks:
        far.read()
    assert far.bench.state() is State.ACTIVE
    assert dict(far.bench.shard.table) == LOADED


@pytest.mark.parametrize("has_read", [True, False])
def test_what_is_read_for_a_load_that_was_given_up_is_dropped(has_read: bool) -> None:
    far = Far()
    if has_read:
        far.tasks.pop(0)()
    far.bench.runtime.unload(0, None)
    while far.tasks:
        far.read()
    far.bench.node.settle()
    assert (far.bench.state(), far.table, far.log.asked) == (None, {}, [0])


def test_another_read_than_the_next_one_takes_its_place() -> None:
    """A window may end within what was read."""
    far = Far()
    far.bench.runtime.unload(0, None)
    node, tasks = far.bench.node, far.tasks
    processor = InlineProcessor(
        node.wheel, node.defer, node.call_soon, background=tasks.append, call_soon_threadsafe=node.call_soon
    )
    ahead = read_ahead(far.log, processor)
    assert ahead is not None
    assert ahead.read(0, 1, BATCHES) is None
    while far.tasks:
        far.read()
    assert ahead.read(0, 1, BATCHES) == b"".join(far.log.batches[:3])
    assert ahead.read(2, 1, BATCHES) is None
    far.read()
    assert ahead.read(2, 1, BATCHES) is None, "this is the read that was given up"
    far.read()
    assert ahead.read(2, 1, BATCHES) == b"".join(far.log.batches[2:5])
    far.read()
    assert ahead.read(1, 1, BATCHES) is None, "what was read behind that is here, and is given up"
    far.read()
    assert ahead.read(1, 1, BATCHES) == b"".join(far.log.batches[1:4])
