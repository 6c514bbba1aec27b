"""
The decoders of data from outside, each as a function of any bytes: what must hold, whatever the bytes are.

`kohort_lab.fuzz_decoders` searches for bytes that break a rule, guided by the coverage of the code. Tests run the same
functions over samples.
"""

import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from kohort.broker.records.produce_rules import ProduceRules
from kohort.broker.records.validation import LargeBatch, validate_batch
from kohort.model.errors import ConfigError, CoordinatorError, CorruptError, WireError
from kohort.model.ids import TopicPartition
from kohort.records.codecs import decode_record
from kohort.records.offset_commits import decode_offset_commit
from kohort.records.schema import record_types
from kohort.records.serde import encode_record
from kohort.records.transaction_logs import decode_transaction_log
from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.log import Log, LogConfig
from kohort.testing.virtual import VirtualNode
from kohort.wire import readers
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES, LEADER_EPOCH_AT, MAGIC, MAGIC_AT
from kohort.wire.batches import check_crc, read_header, read_records
from kohort.wire.columnar.layout import BatchBuffer
from kohort.wire.compression import Codec, compress, decompress
from kohort.wire.encoders import request_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.generated.guards import LongMessage
from kohort.wire.headers import read_request_header
from kohort.wire.produced import validate_produced
from kohort.wire.readers import gradual_request_reader, request_reader
from kohort_lab.fuzz.batches import sample_batch, sealed
from kohort_lab.fuzz.mutations import mutate
from kohort_lab.fuzz.samples import Sampler

readers.FIRST_READS = 0  # kio's reader is examined, too

_NOW_MS: Final = 1_700_000_000_000
_RULES: Final = ProduceRules(
    is_compacted=False,
    is_log_append_time=False,
    timestamp_before_max_ms=1 << 62,
    timestamp_after_max_ms=3_600_000,
    codec=None,
    takes_as_it_is=True,
)
_DECOMPRESSED_BYTES_MAX: Final = 1 << 16
_BATCH_BYTES_MAX: Final = 1 << 20


class BrokenRuleError(AssertionError):
    """A decoder accepted what it must refuse, or two decoders disagree."""


def check(holds: bool, rule: str) -> None:
    """Raise BrokenRuleError unless the rule holds."""
    if not holds:
        raise BrokenRuleError(rule)


# -- requests ------------------------------------------------------------------------------------------------------------

_VERSIONS: Final = [(api, version) for api in ApiKey for version in range(api.oldest, api.newest + 1)]


def requests(data: bytes) -> None:
    """
    A request is read or refused with WireError, and the reader that works in steps finds the same.

    The first two bytes choose API and version.
    """
    api, version = _VERSIONS[int.from_bytes(data[:2], "big") % len(_VERSIONS)]
    body = data[2:]
    with suppress(WireError):
        read_request_header(body)
    try:
        found = request_reader(api, version)(body, 0)
    except LongMessage:
        with suppress(WireError):
            drain(gradual_request_reader(api, version)(body, 0, len(body)))
        return
    except WireError:
        found = None
    try:
        in_steps = drain(gradual_request_reader(api, version)(body, 0, len(body)))
    except WireError as error:
        if any(words in str(error) for words in _CHECKED_IN_STEPS):
            return
        in_steps = None
    check((found is None) == (in_steps is None), "one reader refuses, the other one does not")
    check(found is None or _shown(found) == _shown(in_steps), "two readers find different values")


_CHECKED_IN_STEPS: Final = ("the tagged field", "a variable-length integer")
"""
Refusals of the reader in steps alone: a tagged field of another size than it states, which Kafka does not check, and a varint
of more than five bytes. The native reader takes such fields by their content.
"""


def _shown(message: Any) -> Any:
    """A message as plain values, in which NaN equals NaN, and a tuple a list."""
    if isinstance(message, list | tuple):
        return [_shown(element) for element in message]
    names = getattr(type(message), "field_names", None)
    if names is None:
        return repr(message)
    return [_shown(getattr(message, name)) for name in names]


def _request_samples(rng: Random) -> Iterator[bytes]:
    sampler = Sampler(rng)
    for number, (api, version) in enumerate(_VERSIONS):
        frame = request_encoder(api, version)(1, "client", sampler.message(f"{api.api_name}Request", version))
        yield number.to_bytes(2, "big") + frame[20 + api.is_flexible(version) :]


# -- batches -------------------------------------------------------------------------------------------------------------


def batches(data: bytes) -> None:
    """
    Each reader of a log reads the records of a batch that Produce accepts, and refuses others with CorruptError or reads them.

    Length and checksum are made right, so that the bytes behind them are reached.
    """
    raw = bytearray(data.ljust(HEADER_BYTES, b"\0"))
    raw[MAGIC_AT] = MAGIC
    batch = sealed(raw)
    stored = _accepted(batch)
    if stored is None:
        with suppress(CorruptError):
            list(read_records(batch))
        with suppress(CorruptError):
            _all_together(batch)
        return
    header = read_header(stored)
    found = [record.offset for record in read_records(stored)]
    expected = list(range(header.base_offset, header.base_offset + header.record_count))
    check(found == expected, "an accepted batch has other offsets than it says")
    check(_all_together(stored) == expected, "the reader of many batches finds other offsets")


def _accepted(batch: bytes) -> bytes | None:
    """The batch as Produce would store it; None if it is refused."""
    try:
        header = validate_produced(batch, api_version=12, batch_bytes_max=_BATCH_BYTES_MAX)
        return bytes(validate_batch(batch, header, _RULES, _NOW_MS))
    except (CoordinatorError, CorruptError, LargeBatch):
        return None


def _all_together(batch: bytes) -> list[int]:
    import numpy as np

    buffer = BatchBuffer()
    buffer.add(batch, bytes_max=_BATCH_BYTES_MAX)
    layout = drain(buffer.parse())
    rows = np.arange(len(layout))
    layout.values(rows)
    return [int(offset) for offset in layout.offsets(rows)]


# -- compression ---------------------------------------------------------------------------------------------------------


def compression(data: bytes) -> None:
    """Data is decompressed within the bound or refused with CorruptError. The first byte chooses the codec."""
    codec = data[0] % 6 if data else 0
    with suppress(CorruptError):
        plain = decompress(data[1:], codec, _DECOMPRESSED_BYTES_MAX)
        check(codec == Codec.NONE or len(plain) <= _DECOMPRESSED_BYTES_MAX, "decompressed beyond the bound")


def _compression_samples(rng: Random) -> Iterator[bytes]:
    for codec in Codec:
        for plain in (b"", b"kafka" * 30, rng.randbytes(300), bytes(200_000)):
            yield bytes([codec]) + compress(plain, codec)


# -- records of coordinators ---------------------------------------------------------------------------------------------

_TYPES: Final = list(record_types().values())
_QUICK: Final[dict[str, Callable[[bytes, bytes], Any]]] = {
    "OffsetCommit": decode_offset_commit,
    "TransactionLog": decode_transaction_log,
}


def coordinator_records(data: bytes) -> None:
    """
    A record is decoded or refused with CorruptError; written again, it means the same; quick decoders agree.

    The first byte chooses the type, the second one is the length of the key behind its type.
    """
    if len(data) < 2:
        return
    record_type = _TYPES[data[0] % len(_TYPES)]
    key = record_type.key_type.to_bytes(2, "big") + data[2 : 2 + data[1]]
    value = data[2 + data[1] :]
    try:
        found = decode_record(record_type, key, value)
    except CorruptError:
        found = None
    if found is not None:
        again = decode_record(record_type, *encode_record(found, int.from_bytes(value[:2], "big")))
        check(repr(again) == repr(found), "a record that is written again means something else")
    quick = _QUICK.get(record_type.name)
    if quick is not None and int.from_bytes(value[:2], "big") == record_type.versions[1]:
        with suppress(IndexError, struct.error, UnicodeDecodeError):
            quickly = quick(key, value)
            check(quickly is None or quickly == found, "the quick decoder finds another record")


def _record_samples(_rng: Random) -> Iterator[bytes]:
    for number, record_type in enumerate(_TYPES):
        for version in range(record_type.versions[0], record_type.versions[1] + 1):
            for size in (8, 40, 120):
                yield bytes([number, 16]) + b"\0\1g\0\1t" + bytes(10) + version.to_bytes(2, "big") + bytes(size)


# -- segments ------------------------------------------------------------------------------------------------------------

_PARTITION: Final = TopicPartition("fuzz", 0)
_TOPIC_ID: Final = UUID(int=7)
_SHARED_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- directories in it have random names
_AFTER_A_CLEAN_STOP: Final = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint")
"""Files without which a log is scanned from its start."""


def segments(data: bytes) -> None:
    """After a crash any bytes are cut back to whole batches with right checksums, once and for all, or refused."""
    with tempfile.TemporaryDirectory(prefix="kohort-fuzz-", dir=_memory_directory()) as name:
        directory = Path(name)
        _open(directory, _append)
        (directory / str(_PARTITION) / f"{0:020}.log").write_bytes(data)
        for file in _AFTER_A_CLEAN_STOP:
            (directory / file).unlink()
        try:
            once = _open(directory, _content)
        except ConfigError:
            return
        for begin, end, *_ in iter_spans(once):
            check(check_crc(once, begin), "a batch with a wrong checksum is served")
            front, back = slice(begin, begin + LEADER_EPOCH_AT), slice(begin + MAGIC_AT, end)
            is_same = once[front] == data[front] and once[back] == data[back]
            check(is_same, "a recovered batch differs from the file in more than its leader epoch")
        check(_open(directory, _content) == once, "the second start finds another log")


def _open(directory: Path, look: Callable[[Log], bytes]) -> bytes:
    """Open the log of the partition, look at it, and stop."""
    node = VirtualNode()
    store = DiskStore(
        directory,
        defer=node.defer,
        call_soon_threadsafe=node.call_soon,
        flush="os",
        node_id=1,
        clock=node.clock,
        journal_file_bytes=1 << 16,
        sync=lambda _: None,
    )
    with closing(store):
        return look(store.open(_PARTITION, _TOPIC_ID, LogConfig()))


def _append(log: Log) -> bytes:
    log.append(sample_batch(Random(1)), leader_epoch=0)
    return b""


def _content(log: Log) -> bytes:
    data, offset = b"", log.log_start_offset
    while piece := log.read(offset, bytes_max=_BATCH_BYTES_MAX):
        data += piece
        offset = list(iter_spans(piece))[-1][3] + 1
    return data


def _memory_directory() -> str | None:
    """A file system in memory: what is searched for is not a matter of the disk."""
    return str(_SHARED_MEMORY) if _SHARED_MEMORY.is_dir() else None


def _batch_samples(rng: Random) -> Iterator[bytes]:
    for _ in range(40):
        yield sample_batch(rng)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "requests": requests,
    "batches": batches,
    "compression": compression,
    "records": coordinator_records,
    "segments": segments,
}
_SAMPLES: Final[dict[str, Callable[[Random], Iterator[bytes]]]] = {
    "requests": _request_samples,
    "batches": _batch_samples,
    "compression": _compression_samples,
    "records": _record_samples,
    "segments": _batch_samples,
}


def samples(target: str, rng: Random, *, changed: int = 1) -> Iterator[bytes]:
    """Bytes to begin with: valid ones, each followed by a number of changed ones."""
    for whole in _SAMPLES[target](rng):
        yield whole
        for _ in range(changed):
            yield mutate(whole, rng)
