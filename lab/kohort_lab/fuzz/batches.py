"""Record batches as producers send them, and changed ones whose checksum is correct, so that a broker looks into them."""

import time
from random import Random
from typing import Final

from kohort.wire.batch_header import ATTRIBUTES_LOW_AT, HEADER_BYTES, LENGTH_AT, LOG_OVERHEAD_BYTES, MAGIC, MAGIC_AT
from kohort.wire.batches import BatchRecord, build_batch, write_crc
from kohort.wire.compression import Codec, compress
from kohort_lab.fuzz.mutations import mutate

_CHANGED_PROBABILITY: Final = 0.5


def sample_batch(rng: Random) -> bytes:
    """A batch of some records in any codec, as it should be or changed."""
    records = [
        BatchRecord(
            rng.choice((None, b"", b"key", rng.randbytes(9))),
            rng.choice((None, b"", b"value" * 20, rng.randbytes(30))),
            [("header", rng.choice((None, b"h")))] * rng.choice((0, 0, 1, 2)),
        )
        for _ in range(rng.choice((1, 1, 2, 10, 100)))
    ]
    is_idempotent = rng.random() < 0.3
    batch = build_batch(
        records,
        timestamp_ms=time.time_ns() // 1_000_000,
        producer_id=rng.randrange(5) if is_idempotent else -1,
        producer_epoch=0 if is_idempotent else -1,
        base_sequence=rng.choice((0, 1, 5)) if is_idempotent else -1,
        transactional=is_idempotent and rng.random() < 0.3,
    )
    codec = rng.choice(list(Codec))
    header, plain = bytearray(batch[:HEADER_BYTES]), batch[HEADER_BYTES:]
    is_changed = rng.random() < _CHANGED_PROBABILITY
    place = rng.choice(("header", "records", "packed")) if is_changed else ""
    if place == "records":
        plain = mutate(plain, rng)
    packed = compress(plain, codec)
    if place == "packed":
        packed = mutate(packed, rng)
    header[ATTRIBUTES_LOW_AT] |= codec
    if place == "header":
        header[:] = mutate(bytes(header), rng)[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
        header[MAGIC_AT] = MAGIC
    return sealed(header + packed)


def sealed(batch: bytearray) -> bytes:
    """The batch with a correct length and checksum."""
    batch[LENGTH_AT : LENGTH_AT + 4] = (len(batch) - LOG_OVERHEAD_BYTES).to_bytes(4, "big")
    write_crc(batch)
    return bytes(batch)
