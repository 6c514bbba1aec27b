"""
Of the commits of a key only the last: what compaction would leave, found before anything of them is decoded.

Only offset commits (key types 0 and 1) outside transactions are compared with each other: what a transaction committed counts
later than it stands in the log, or never, so all of it stays. The records of about `SPAN_BYTES` of log are compared at once,
which bounds memory; a key of an earlier span may come again.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from kohort.pipeline.decode.batches import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from kohort.pipeline.decode.offsets import KEY_TYPES
from kohort.pipeline.decode.records import Records
from kohort.pipeline.decode.vectors import slices
from kohort.wire.vectors import Bools, big_endian

SPAN_BYTES = 128 << 20


def compacted(laid_out: Iterable[Records]) -> Iterator[Records]:
    """The records that are left, in the order in which they came."""
    span: list[Records] = []
    span_bytes = 0
    for records in laid_out:
        span.append(records)
        span_bytes += len(records.window.data)
        if span_bytes >= SPAN_BYTES:
            yield from _compacted_span(span)
            span, span_bytes = [], 0
    if span:
        yield from _compacted_span(span)


def _compacted_span(span: list[Records]) -> Iterator[Records]:
    plain = [_is_plain_commit(records) for records in span]
    keys = pa.chunked_array([_keys(records.select(chosen)) for records, chosen in zip(span, plain, strict=True)])
    codes = keys.dictionary_encode().unify_dictionaries().combine_chunks()
    codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
    at = codes.indices.to_numpy(zero_copy_only=False)
    last = np.full(len(codes.dictionary), -1, np.int64)
    # Of the values that go to one place, the last stays.
    last[at] = np.arange(len(at))
    is_last = np.zeros(len(at), np.bool_)
    is_last[last] = True
    first = 0
    for records, chosen in zip(span, plain, strict=True):
        count = int(chosen.sum())
        left = ~chosen
        left[chosen] = is_last[first : first + count]
        first += count
        yield records.select(left)


def _is_plain_commit(records: Records) -> Bools:
    attributes = records.window.headers["attributes"].astype(np.int16)
    plain = (attributes & (ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)) == 0
    key_types = big_endian(records.window.data, records.key_at, "i2")
    chosen: Bools = plain[records.batch] & (records.key_bytes >= 2) & np.isin(key_types, KEY_TYPES)
    return chosen


def _keys(records: Records) -> pa.Array:
    # Behind the type, which says only in which version the rest was written.
    return slices(records.window.data, records.key_at + 2, records.key_bytes - 2)
