"""
Records that a load cannot use, and leaves out.

A record is set aside if its key or value cannot be decoded, and a batch if its contents are no records although its checksum
is right: a producer wrote these bytes, and the log holds them as they were sent. A batch whose checksum is wrong is damage of
the log instead, and no header of it can be trusted; then the load fails (`checks`).

Kafka's loader fails for both. A record of an unknown type is no error there and here: it is skipped.
"""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kohort.machine.shard import RecordSerde
from kohort.model.errors import CorruptError, UnknownRecordTypeError
from kohort.wire.batches import BatchHeader, read_records

KEY_BYTES_SHOWN: Final = 64
DETAILS_MAX: Final = 100
"""As many are logged and kept by a load; the others are counted."""


class SetAside(msgspec.Struct, frozen=True):
    """
    A record, or a batch of records, that is left out.

    Attributes:
        offset: of the record, or the base offset of the batch.
        records: how many records these are.
        key: the beginning of the record's key; None for a batch.
        reason: why it cannot be decoded.
    """

    offset: int
    records: int
    key: bytes | None
    reason: str

    def __str__(self) -> str:
        if self.key is None:
            return f"offset={self.offset} records={self.records} reason={self.reason}"
        return f"offset={self.offset} key={self.key.hex()} reason={self.reason}"


def record_set_aside(offset: int, key: bytes, error: CorruptError) -> SetAside:
    return SetAside(offset, 1, key[:KEY_BYTES_SHOWN], str(error))


def batch_set_aside(header: BatchHeader, error: CorruptError) -> SetAside:
    """Describe a batch whose checksum is right and whose contents are no records."""
    return SetAside(header.base_offset, max(header.record_count, 0), None, str(error))


def find_set_aside(header: BatchHeader, batch: bytes | memoryview, serde: RecordSerde[Any]) -> Iterator[SetAside]:
    """
    Yield what a load of this batch would set aside; for tools that check a log.

    Args:
        header: the header of the batch.
        batch: the whole batch, whose checksum is right.
    """
    if header.is_control:
        return
    try:
        records = read_records(batch, header=header)
    except CorruptError as error:
        yield batch_set_aside(header, error)
        return
    for record in records:
        if record.key is None:
            continue
        try:
            serde.decode(record.key, record.value)
        except UnknownRecordTypeError:
            continue
        except CorruptError as error:
            yield record_set_aside(record.offset, record.key, error)
