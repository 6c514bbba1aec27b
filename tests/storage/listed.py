"""
A log as a list of batches: everything that was ever written to it, in order, and which of it is there still.

Naive on purpose: every question is answered by going through the whole list.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ListedRecord:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


@dataclass
class ListedBatch:
    """
    A batch.

    Attributes:
        records: those that are there; a cleaner takes some.
        committed: of a marker, what it says; None for data.
        is_present: a cleaner may take the batch itself.
    """

    base_offset: int
    last_offset: int
    records: list[ListedRecord]
    producer_id: int = -1
    next_sequence: int = 0
    is_transactional: bool = False
    committed: bool | None = None
    is_present: bool = True

    @property
    def is_data(self) -> bool:
        return self.committed is None


@dataclass
class ListedLog:
    """
    What a log has to be.

    Attributes:
        start, durable_start: where it begins, and where it begins at least after a crash.
        is_whole: nothing was ever cleaned.
    """

    batches: list[ListedBatch] = field(default_factory=list)
    start: int = 0
    durable_start: int = 0
    is_whole: bool = True

    @property
    def end(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    def cut(self, end: int) -> None:
        """A crash took what begins at `end` or behind."""
        self.batches = [batch for batch in self.batches if batch.base_offset < end]

    def next_sequence(self, producer_id: int) -> int:
        batches = [batch for batch in self.batches if batch.is_data and batch.producer_id == producer_id]
        return batches[-1].next_sequence if batches else 0

    def fate(self, batch: ListedBatch, bound: int) -> bool | None:
        """Whether its transaction was committed by a marker below `bound`; None when there is none."""
        if not batch.is_transactional:
            return True
        behind = (
            later.committed
            for later in self.batches
            if later.producer_id == batch.producer_id and batch.base_offset < later.base_offset < bound
            if not later.is_data
        )
        return next(behind, None)

    def open_producers(self) -> set[int]:
        return {batch.producer_id for batch in self.batches if batch.is_data and self.fate(batch, self.end) is None}

    def stable_end(self, high_watermark: int) -> int:
        """The last stable offset."""
        unstable = (
            batch.base_offset for batch in self.batches if batch.is_data and self.fate(batch, high_watermark) is None
        )
        return min(next(unstable, high_watermark), high_watermark)

    def aborted(self) -> list[tuple[int, int, int]]:
        """Aborted transactions in the order of their markers: producer id, first offset, offset of the marker."""
        found = []
        first_offsets: dict[int, int] = {}
        for batch in self.batches:
            if batch.is_data and batch.is_transactional:
                first_offsets.setdefault(batch.producer_id, batch.base_offset)
            elif not batch.is_data:
                first_offset = first_offsets.pop(batch.producer_id, None)
                if first_offset is not None and not batch.committed:
                    found.append((batch.producer_id, first_offset, batch.base_offset))
        return found

    def batch_at(self, offset: int, bound: int) -> ListedBatch | None:
        """The first batch that a reader from `offset` is given."""
        present = (batch for batch in self.batches if batch.is_present and batch.last_offset >= offset)
        found = next(present, None)
        return found if found is not None and found.base_offset < bound else None

    def records(self, start: int) -> Iterator[ListedRecord]:
        """Those that can be read, of markers too."""
        for batch in self.batches:
            if batch.is_present:
                yield from (record for record in batch.records if record.offset >= start)

    def committed(self, offset: int, bound: int) -> list[ListedRecord]:
        """What a reader of committed data gets from `offset` on."""
        return [
            record
            for batch in self.batches
            if batch.is_present and batch.is_data and self.fate(batch, self.end)
            for record in batch.records
            if offset <= record.offset < bound
        ]

    def first_at_least(self, timestamp_ms: int) -> ListedRecord | None:
        return next((record for record in self.records(self.start) if record.timestamp_ms >= timestamp_ms), None)

    def newest(self) -> ListedRecord | None:
        """The first of those with the largest timestamp."""
        return max(self.records(self.start), key=lambda record: record.timestamp_ms, default=None)

    def newest_of_keys(self, bound: int) -> dict[bytes | None, ListedRecord]:
        return {record.key: record for record in self.committed(self.start, bound)}
