"""Batch rows: the timestamp of the first record, and the transaction marker."""

from typing import Any

import numpy as np
import pytest

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment
from kohort.storage.cleaning.batches import empty, rebuild
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import read_header, read_records
from tests.pipeline.logbytes import TIMESTAMP_MS, batch, marker, sealed

APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x30
NONE, GZIP = 0, 1
DAY_MS = 86_400_000
COMMIT_KEY = b"\x00\x00\x00\x01"
PAIRS = ((b"a", b"1"), (b"b", b"2"), (b"c", None))
COLUMNS = ("first_timestamp_ms", "record_count", "control")


def rows(raw: bytes, *columns: str) -> list[tuple[Any, ...]]:
    decoder = Decoder(kinds=(schemas.BATCH,), schema=schemas.subset(columns))
    found = decoder.decode(raw, Segment("t", 0, 0, "00000000000000000000.log", len(raw)))
    return [tuple(row.values()) for one in found for row in one.to_pylist()]


def cleaned(raw: bytes, *kept: int, horizon: bool = True) -> bytes:
    """The batch when compaction has kept some of its records, by their index, with a delete horizon in a day."""
    header = read_header(raw)
    if not kept:
        return empty(header)
    records = [record for index, record in enumerate(read_records(raw)) if index in kept]
    return rebuild(header, records, delete_horizon_ms=TIMESTAMP_MS + DAY_MS if horizon else -1)


def nonsense(raw: bytes) -> bytes:
    """Records that do not parse below a header that is right."""
    return sealed(bytearray(raw[:HEADER_BYTES] + b"\xff" * (len(raw) - HEADER_BYTES)))


def with_control_type(number: int) -> bytes:
    raw = bytearray(marker(0, 7, committed=True))
    raw[raw.index(COMMIT_KEY, HEADER_BYTES) + 3] = number
    return sealed(raw)


# fmt: off
BATCHES = {
    "as produced":                    (batch(0, PAIRS),                              (TIMESTAMP_MS, 3, None)),
    "compressed":                     (batch(0, PAIRS, codec=GZIP),                  (TIMESTAMP_MS, 3, None)),
    "when it was appended":           (batch(0, PAIRS, attributes=APPEND_TIME),      (TIMESTAMP_MS + 2, 3, None)),
    "its first record cleaned away":  (cleaned(batch(0, PAIRS), 1, horizon=False),   (TIMESTAMP_MS + 1, 1, None)),
    "a tombstone with a horizon":     (cleaned(batch(0, PAIRS), 1, 2),               (TIMESTAMP_MS + 1, 2, None)),
    "the same, compressed":           (cleaned(batch(0, PAIRS, codec=GZIP), 1, 2),   (TIMESTAMP_MS + 1, 2, None)),
    "the same, when appended":        (cleaned(batch(0, PAIRS, attributes=APPEND_TIME), 1), (TIMESTAMP_MS + 2, 1, None)),
    "all records cleaned away":       (cleaned(batch(0, PAIRS)),                     (None, 0, None)),
    "in a transaction":               (batch(0, PAIRS, attributes=TRANSACTIONAL),    (TIMESTAMP_MS, 3, None)),
    "a commit":                       (marker(0, 7, committed=True),                 (TIMESTAMP_MS, 1, "COMMIT")),
    "an abort":                       (marker(0, 7, committed=False),                (TIMESTAMP_MS, 1, "ABORT")),
    "a marker with a horizon":        (cleaned(marker(0, 7, committed=True), 0),     (TIMESTAMP_MS, 1, "COMMIT")),
    "a marker cleaned away":          (cleaned(marker(0, 7, committed=True)),        (None, 0, None)),
    "a change of leader":             (with_control_type(2),                         (TIMESTAMP_MS, 1, None)),
    "a marker of nonsense":           (nonsense(marker(0, 7, committed=True)),           (TIMESTAMP_MS, 1, None)),
    "a marker without a value":       (batch(0, [(COMMIT_KEY, None)], attributes=CONTROL), (TIMESTAMP_MS, 1, None)),
}
# fmt: on


@pytest.mark.parametrize("name", BATCHES)
def test_what_a_batch_says(name: str) -> None:
    raw, expected = BATCHES[name]
    assert rows(raw, *COLUMNS) == [expected]


def test_among_others_each_batch_says_its_own() -> None:
    """Many of them, some compressed, so that windows begin and end between them."""
    chosen = np.random.default_rng(5).integers(0, len(BATCHES), 400).tolist()
    cases = [list(BATCHES.values())[index] for index in chosen]
    raw = b"".join(raw for raw, _ in cases)
    assert rows(raw, *COLUMNS) == [expected for _, expected in cases]


def test_records_that_cannot_be_read_leave_the_greatest_time() -> None:
    raw = nonsense(cleaned(batch(0, PAIRS), 1, 2))
    assert rows(raw, *COLUMNS) == [(TIMESTAMP_MS + 2, 2, None)]


def test_no_record_is_looked_at_for_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = marker(0, 7, committed=True)
    monkeypatch.delattr("kohort.pipeline.decode.batch_rows.parse")
    assert rows(raw, "log_offset", "is_control", "record_count") == [(0, True, 1)]
    with pytest.raises(NameError):
        rows(raw, "control")
