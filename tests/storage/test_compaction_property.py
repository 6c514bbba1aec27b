"""Any mix of appends, transactions, rolls, deletions, cleanings, restarts and crashes, beside a list of what was written."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.storage.disk import DiskStore
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batches import iter_batches, read_records
from kohort_lab.faulty_files import FaultyFiles
from tests.conftest import LONG
from tests.storage.compacted import CONFIG, clean, end_transaction, make_durable, open_log, put, roll
from tests.storage.conftest import IN_MEMORY
from tests.storage.owner import Owner, abandon

RETENTION_MS = 1000
PRODUCERS = (1, 2, 3)

keys = st.sampled_from(["a", "b", "c", "d", "e"])
pairs = st.lists(st.tuples(keys, st.booleans()), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), pairs),
        st.tuples(st.just("idempotent"), pairs),
        st.tuples(st.just("transactional"), st.sampled_from(PRODUCERS), pairs),
        st.tuples(st.just("end"), st.sampled_from(PRODUCERS), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("delete"), st.integers(0, 40)),
        st.tuples(st.just("clean"), st.sampled_from([0, 1, RETENTION_MS - 1, RETENTION_MS, RETENTION_MS + 1])),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    min_size=5,
    max_size=60,
)


class Written(msgspec.Struct):
    """A record of the model. `state`: "committed", "aborted" or "open"."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int = -1
    state: str = "committed"


@dataclass
class Model:
    """Every record that was ever written, and what each producer sends next."""

    written: list[Written] = field(default_factory=list)
    sequences: dict[int, int] = field(default_factory=dict)
    start: int = 0

    def newest(self) -> dict[bytes, Written]:
        return {
            record.key: record for record in self.written if record.state == "committed" and record.offset >= self.start
        }


@contextmanager
def data_dir() -> Iterator[Path]:
    with (
        TemporaryDirectory(dir=IN_MEMORY) as directory,
        FaultyFiles(Path(directory) / "data"),
    ):  # nothing is flushed for real
        yield Path(directory) / "data"


class Run:
    def __init__(self, path: Path) -> None:
        self.path, self.owner, self.model = path, Owner(), Model()
        self.config = msgspec.structs.replace(CONFIG, segment_bytes=400, delete_retention_ms=RETENTION_MS)
        self.count = 0
        self.open()

    def open(self) -> None:
        self.store: DiskStore = self.owner.disk(self.path)
        self.log: DiskLog = open_log(self.store, self.config)

    @property
    def timestamp_ms(self) -> int:
        """Of the next batch."""
        return 1000

    def put(self, found: list[tuple[str, bool]], producer_id: int = -1, *, transactional: bool = False) -> None:
        self.count += 1
        sent = [(key, f"{self.count}.{place}" if has_value else None) for place, (key, has_value) in enumerate(found)]
        base_offset = self.log.end_offset
        producer = {}
        if producer_id >= 0:
            sequence = self.model.sequences.get(producer_id, 0)
            self.log.producers.check(
                producer_id=producer_id,
                producer_epoch=0,
                first_sequence=sequence,
                is_transactional=transactional,
            )
            self.model.sequences[producer_id] = sequence + len(sent)
            producer = {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": sequence,
                "transactional": transactional,
            }
        put(self.log, *sent, timestamp_ms=self.timestamp_ms, **producer)
        self.model.written += [
            Written(
                base_offset + place,
                key.encode(),
                None if value is None else value.encode(),
                producer_id,
                "open" if transactional else "committed",
            )
            for place, (key, value) in enumerate(sent)
        ]

    def end(self, producer_id: int, committed: bool) -> None:
        if not self.log.producers.has_transaction(producer_id):
            return
        end_transaction(self.log, producer_id, committed=committed)
        for record in self.model.written:
            if record.producer_id == producer_id and record.state == "open":
                record.state = "committed" if committed else "aborted"

    def delete(self, percent: int) -> None:
        self.store.flush()
        offset = self.model.start + (self.log.high_watermark - self.model.start) * percent // 100
        self.log.delete_before(offset)
        self.model.start = max(self.model.start, offset)

    def clean(self, elapsed_ms: int) -> None:
        self.owner.node.advance(elapsed_ms)
        clean(self.owner, self.store)
        assert not self.store.cleaner.uncleanable

    def restart(self, is_clean: bool) -> None:
        self.store.flush()
        if is_clean:
            self.store.close()
        else:
            abandon(self.store)
            now_ms, self.owner = (
                self.owner.clock.now_ms(),
                Owner(),
            )  # what the dead one has still to do is done by nobody
            self.owner.clock.set(now_ms)
        self.open()

    def check(self) -> None:
        """What a reader of committed data gets is the model's, less what is superseded or has passed away."""
        model, log = self.model, self.log
        self.store.flush()
        known = {record.offset: record for record in model.written}
        seen = [known[offset] for offset in self.committed()]
        assert all(record.state == "committed" for record in seen)
        assert [record.offset for record in seen] == sorted({record.offset for record in seen})
        newest = {record.key: record for record in seen}
        for key, record in model.newest().items():
            if record.offset < log.last_stable_offset and (record.value is not None or key in newest):
                assert newest[key] == record
        assert log.log_start_offset == model.start

    def committed(self) -> Iterator[int]:
        """The offsets that a reader of committed data gets, each record checked against the model."""
        log, offset = self.log, self.log.log_start_offset
        known = {record.offset: record for record in self.model.written}
        while offset < log.last_stable_offset and (data := log.read(offset, bytes_max=1, up_to=log.last_stable_offset)):
            aborted = log.aborted_transactions(offset, data)
            for position, header in iter_batches(data):
                is_aborted = header.is_transactional and any(
                    entry.producer_id == header.producer_id
                    and entry.first_offset <= header.base_offset < entry.last_offset
                    for entry in aborted
                )
                for record in read_records(memoryview(data)[position:], header=header):
                    if header.is_control or record.offset < log.log_start_offset:
                        continue
                    written = known[record.offset]
                    assert (record.key, record.value) == (written.key, written.value)
                    if not is_aborted:
                        yield record.offset
                offset = header.next_offset


def do(run: Run, step: tuple[object, ...]) -> None:
    match step:
        case ("put", found):
            run.put(found)  # type: ignore[arg-type]
        case ("idempotent", found):
            run.put(found, 7)  # type: ignore[arg-type]
        case ("transactional", producer_id, found):
            run.put(found, producer_id, transactional=True)  # type: ignore[arg-type]
        case ("roll",):
            roll(run.log)
        case (str(name), *arguments):
            getattr(run, name)(*arguments)


@settings(max_examples=2000 if LONG else 40, deadline=None)
@given(steps)
def test_a_compacted_log_agrees_with_a_list(chosen: list[tuple[object, ...]]) -> None:
    with data_dir() as path:
        run = Run(path)
        for step in chosen:
            do(run, step)
            run.check()
        for _ in range(3):
            run.clean(RETENTION_MS)
            run.check()
        make_durable(run.owner, run.store)
        run.store.close()
        shutil.rmtree(path)
