"""The positions of a batch header's fields, which are stated as literals."""

from kohort.wire import batch_header
from kohort.wire.batch_header import FIELDS, HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES, fields_struct, position_of
from kohort.wire.batches import BatchRecord, build_batch, read_header
from kohort.wire.columnar.layout import HEADER_DTYPE


def test_literals_are_the_positions_of_the_fields() -> None:
    stated = {
        name.removesuffix("_AT").lower(): value for name, value in vars(batch_header).items() if name.endswith("_AT")
    }
    assert stated.pop("attributes_low") == position_of("attributes") + 1
    assert stated == {name: position_of(name) for name, _ in FIELDS if name != "base_offset"}
    assert HEADER.size == HEADER_BYTES == HEADER_DTYPE.itemsize
    assert position_of("leader_epoch") == LOG_OVERHEAD_BYTES
    assert fields_struct("producer_id", "count").size == 18


def test_columns_and_the_header_class_have_the_fields_in_their_order() -> None:
    names = [name for name, _ in FIELDS]
    assert list(HEADER_DTYPE.names or ()) == names
    ours = {"leader_epoch": "partition_leader_epoch", "count": "record_count"}
    batch = build_batch([BatchRecord(b"k", b"v")] * 3, timestamp_ms=7, producer_id=5, producer_epoch=2, base_sequence=9)
    header = read_header(batch)
    assert [getattr(header, ours.get(name, name)) for name in names] == list(HEADER.unpack_from(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (5, 2, 9, 3)
