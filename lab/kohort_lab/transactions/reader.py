"""A consumer with `read_committed` of one partition."""

from __future__ import annotations

from typing import Any

from kohort.model.ids import TopicPartition
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import iter_batches, read_marker, read_records
from kohort_lab.transactions.broker import SimulatedBroker
from kohort_lab.transactions.ledger import Ledger

READ_COMMITTED = 1


class CommittedReader:
    """
    Reads on at each call of `read`, and skips aborted batches as clients do.

    Attributes:
        values: the values of all records so far.
    """

    def __init__(self, broker: SimulatedBroker, ledger: Ledger, place: TopicPartition) -> None:
        self._broker = broker
        self._ledger = ledger
        self.place = place
        self.values: list[str] = []
        self._position = 0
        self._last_stable_offset = 0
        self._aborted: set[int] = set()

    def read(self) -> None:
        """Fetch once. It is a broken guarantee if the last stable offset has moved back."""
        wanted = m.FetchRequestFetchPartition(
            partition=self.place.partition, fetch_offset=self._position, partition_max_bytes=1 << 20
        )
        request = m.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED,
            session_id=0,
            session_epoch=-1,
            topics=[m.FetchRequestFetchTopic(topic=self.place.topic, partitions=[wanted])],
        )
        self._broker.ask(ApiKey.FETCH, 12, request, self._fetched)

    def _fetched(self, response: Any) -> None:
        if not isinstance(response, m.FetchResponse):
            return
        found = response.responses[0].partitions[0]
        if found.error_code:
            self._ledger.broken(f"a fetch at {self._position} of {self.place} fails: {found.error_code}")
            return
        if found.last_stable_offset < self._last_stable_offset:
            self._ledger.broken(
                f"the last stable offset of {self.place} moves from {self._last_stable_offset} back to "
                f"{found.last_stable_offset}"
            )
        self._last_stable_offset = found.last_stable_offset
        aborted = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        data = bytes(found.records or b"")
        for at, header in iter_batches(data):
            while aborted and aborted[0][0] <= header.last_offset:
                self._aborted.add(aborted.pop(0)[1])
            records = read_records(data[at : at + header.size_bytes])
            if header.is_control:
                marker = read_marker(records[0])
                if marker is not None and not marker.committed:
                    self._aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in self._aborted):
                self.values += [(record.value or b"").decode() for record in records if record.offset >= self._position]
            self._position = max(self._position, header.next_offset)
