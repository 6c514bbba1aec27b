"""A consumer's filter for `read_committed`."""

from collections.abc import Iterable, Iterator

from kohort.wire.batches import LogRecord, iter_batches, read_marker, read_records


def committed_records(data: bytes, aborted: Iterable[tuple[int, int]]) -> Iterator[LogRecord]:
    """
    The records of fetched batches that belong to no aborted transaction.

    Args:
        aborted: producer id and first offset of each aborted transaction of the response.

    Source: KIP-98, CompletedFetch.consumeAbortedTransactionsUpTo, containsAbortMarker.
    """
    pending = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
    aborting: set[int] = set()
    for position, header in iter_batches(data):
        while pending and pending[0][0] <= header.last_offset:
            aborting.add(pending.pop(0)[1])
        records = read_records(memoryview(data)[position:], header=header)
        if header.is_control:
            marker = read_marker(records[0]) if records else None
            if marker is not None and not marker.committed:
                aborting.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborting):
            yield from records
