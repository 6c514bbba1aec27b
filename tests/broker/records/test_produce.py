"""What a producer is told. Rows are those of Kafka's LogValidator and ReplicaManager as probed on Apache Kafka 4.2.1."""

from typing import Any
from uuid import UUID

import pytest

from kohort.broker.ports import NoResponse
from kohort.broker.records.produce_rules import ProduceRules
from kohort.broker.records.validation import validate_batch
from kohort.model.errors import ErrorCode
from kohort.storage.log import LONG_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, read_header, read_records, write_crc
from kohort.wire.compression import Codec
from tests.broker.harness import Harness, batch, produce_request

GOOD = batch(b"one", b"two", b"three")


def patched(position: int, value: bytes, *, crc: bool = True) -> bytes:
    """A batch with some bytes changed, and a checksum that is right for them or not."""
    changed = bytearray(GOOD)
    changed[position : position + len(value)] = value
    if crc:
        write_crc(changed)
    return bytes(changed)


def with_attributes(attributes: int, **what: Any) -> bytes:
    return patched(21, attributes.to_bytes(2, "big"), **what)


def timed(timestamp_ms: int, *, log_append_time: bool = False) -> bytes:
    sent = bytearray(batch(b"x", timestamp_ms=timestamp_ms))
    if log_append_time:
        sent[22] |= 0x08
        write_crc(sent)
    return bytes(sent)


# fmt: off
REFUSED = {  # what is sent: the code, and whether the log start offset is told (the log itself refused it)
    "null records":                   (None,                                       ErrorCode.INVALID_RECORD,        False),
    "no bytes":                       (b"",                                        ErrorCode.INVALID_RECORD,        False),
    "two batches":                    (GOOD + GOOD,                                ErrorCode.INVALID_RECORD,        False),
    "cut off":                        (GOOD[:-1],                                  ErrorCode.INVALID_RECORD,        False),
    "cut off in the header":          (GOOD[:16],                                  ErrorCode.INVALID_RECORD,        False),
    "magic 0":                        (patched(16, b"\x00", crc=False),            ErrorCode.INVALID_RECORD,        False),
    "magic 1":                        (patched(16, b"\x01", crc=False),            ErrorCode.INVALID_RECORD,        False),
    "magic 3":                        (patched(16, b"\x03", crc=False),            ErrorCode.CORRUPT_MESSAGE,       False),
    "magic -1":                       (patched(16, b"\xff", crc=False),            ErrorCode.CORRUPT_MESSAGE,       False),
    "length too small":               (patched(8, b"\0\0\0\x05", crc=False),       ErrorCode.CORRUPT_MESSAGE,       False),
    "wrong checksum":                 (patched(17, b"\0\0\0\0", crc=False),        ErrorCode.CORRUPT_MESSAGE,       False),
    "base offset 1":                  (patched(7, b"\x01"),                        ErrorCode.INVALID_RECORD,        True),
    "fewer records than offsets":     (patched(57, b"\0\0\0\x02"),                 ErrorCode.INVALID_RECORD,        True),
    "no records":                     (patched(57, b"\0\0\0\0"),                   ErrorCode.INVALID_RECORD,        True),
    "control batch":                  (with_attributes(0x20),                      ErrorCode.INVALID_RECORD,        True),
    "producer id without sequence":   (patched(43, b"\0\0\0\0\0\0\0\x05"),         ErrorCode.INVALID_RECORD,        True),
    "codec 5":                        (with_attributes(0x05),                      ErrorCode.UNKNOWN_SERVER_ERROR,  True),
    "transactional without an id":    (with_attributes(0x10),
                                       ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False),
    "an hour and a bit ahead":        (timed(1_700_003_600_001),                   ErrorCode.INVALID_TIMESTAMP,     True),
    "LogAppendTime without a time":   (timed(-1, log_append_time=True),            ErrorCode.INVALID_TIMESTAMP,     True),
}
ACCEPTED = {
    "as it should be":                GOOD,
    "bytes of a next batch":          GOOD + GOOD[:16],
    "sequence without a producer id": patched(53, b"\0\0\0\x07"),
    "unused attribute bits":          with_attributes(0x7F00),
    "delete horizon bit":             with_attributes(0x40),
    "no timestamp":                   timed(-1),
    "timestamp -2":                   timed(-2),
    "just an hour ahead":             timed(1_700_003_600_000),
    "of 1970":                        timed(0),
    "LogAppendTime with a time":      timed(1_700_000_000_000, log_append_time=True),
}
# fmt: on


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what: str) -> None:
    records, code, is_judged = REFUSED[what]
    harness = Harness()
    harness.create("t")
    (answer,) = harness.produce("t", {0: records})
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert answer.log_start_offset == (0 if is_judged else -1)
    assert harness.write("t", b"x") == 0, "nothing was written"


@pytest.mark.parametrize("what", ACCEPTED)
def test_accepted(what: str) -> None:
    harness = Harness()
    harness.create("t")
    (answer,) = harness.produce("t", {0: ACCEPTED[what]})
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 0, 0)
    assert (answer.log_append_time_ms, answer.record_errors, answer.error_message) == (-1, (), None)


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), (7, ErrorCode.NONE)])
def test_zstd_since_version_7(version: int, code: ErrorCode) -> None:
    harness = Harness()
    harness.create("t")
    (answer,) = harness.produce("t", {0: batch(b"x", compression=Codec.ZSTD)}, version=version)
    assert answer.error_code == code


def test_larger_than_the_topic_takes() -> None:
    harness = Harness()
    harness.create("t", max_message_bytes="100")
    fits, too_large = batch(b"x" * 31), batch(b"x" * 32)
    assert (len(fits), len(too_large)) == (100, 101)
    answers = [harness.produce("t", {0: sent})[0] for sent in (fits, too_large)]
    assert [answer.error_code for answer in answers] == [0, ErrorCode.MESSAGE_TOO_LARGE]


def test_a_topic_or_the_broker_bounds_the_records_of_compressed_batches() -> None:
    """Source: a 4.4.0."""
    harness = Harness(max_decompressed_message_bytes="20")
    harness.create("t", max_decompressed_message_bytes="50")
    harness.create("u")
    for topic, largest in (("t", 43), ("u", 13)):
        for size, code in ((largest, ErrorCode.NONE), (largest + 1, ErrorCode.INVALID_RECORD)):
            (answer,) = harness.produce(topic, {0: batch(b"v" * size, compression=Codec.GZIP)})
            assert (answer.error_code, answer.error_message, list(answer.record_errors)) == (code, None, [])
        assert harness.write(topic, b"v" * 100) == 1, "not compressed"


def test_compacted_topic_wants_keys() -> None:
    harness = Harness()
    harness.create("t", cleanup_policy="compact")
    records = [BatchRecord(b"k", b"a"), BatchRecord(None, b"b"), BatchRecord(None, b"c")]
    (answer,) = harness.produce("t", {0: build_batch(records, timestamp_ms=0)})
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 2]
    assert harness.produce("t", {0: batch(b"x")})[0].error_code == 0


def test_records_outside_the_limits_of_time_are_named() -> None:
    harness = Harness()
    harness.create("t", message_timestamp_before_max_ms="1000")
    now_ms = harness.node.clock.now_ms()
    times = [now_ms - 1000, now_ms - 1001, now_ms, now_ms + 3_600_000, now_ms + 3_600_001]
    records = [BatchRecord(b"k", b"v", timestamp_ms=time_ms) for time_ms in times]
    (answer,) = harness.produce("t", {0: build_batch(records, timestamp_ms=now_ms)})
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [1, 4]


def test_log_append_time() -> None:
    harness = Harness()
    harness.create("t", message_timestamp_type="LogAppendTime")
    sent = timed(5)
    (answer,) = harness.produce("t", {0: sent})
    now_ms = harness.node.clock.now_ms()
    assert answer.log_append_time_ms == now_ms
    stored = read_header(stored_bytes(harness))
    assert (stored.is_log_append_time, stored.base_timestamp, stored.max_timestamp) == (True, 5, now_ms)
    (answer,) = harness.produce("t", {0: timed(5, log_append_time=True)})
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP


def test_log_append_time_bit_is_cleared_by_a_create_time_topic() -> None:
    harness = Harness()
    harness.create("t")
    harness.produce("t", {0: timed(77, log_append_time=True)})
    assert not read_header(stored_bytes(harness)).is_log_append_time


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_topic_with_a_compression_of_its_own(codec: str) -> None:
    harness = Harness()
    harness.create("t", compression_type=codec)
    sent = build_batch(
        [BatchRecord(b"k", b"v" * 100, (("h", b"1"), ("h", None)), 5), BatchRecord(None, None, (), 7)],
        timestamp_ms=0,
        compression=Codec.GZIP,
    )
    harness.produce("t", {0: sent})
    stored = stored_bytes(harness)
    assert read_header(stored).codec == (0 if codec == "uncompressed" else Codec[codec.upper()])
    seen = [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in read_records(stored)]
    assert seen == [(0, 5, b"k", b"v" * 100, [("h", b"1"), ("h", None)]), (1, 7, None, None, [])]


def stored_bytes(harness: Harness) -> bytes:
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    return partition.log.read(0, bytes_max=1 << 20)


# fmt: off
ADDRESS = {  # topic, partition, client: code
    ("t", 0, "test"):                            ErrorCode.NONE,
    ("t", 1, "test"):                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ("t", -1, "test"):                           ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ("nowhere", 0, "test"):                      ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ("__kohort_catalog", 0, "test"):             ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ("__consumer_offsets", 0, "test"):           ErrorCode.INVALID_TOPIC_EXCEPTION,
    ("__consumer_offsets", 0, "__admin_client"): ErrorCode.NONE,
}
# fmt: on


@pytest.mark.parametrize("where", ADDRESS)
def test_address(where: tuple[str, int, str]) -> None:
    topic, partition, client_id = where
    harness = Harness()
    harness.create("t")
    harness.ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
    (answer,) = harness.produce(topic, {partition: GOOD}, client_id=client_id)
    assert answer.error_code == ADDRESS[where]


@pytest.mark.parametrize("acks", [-2, 2, 3])
def test_acks_that_mean_nothing(acks: int) -> None:
    harness = Harness()
    harness.create("t")
    (answer,) = harness.produce("t", {0: GOOD}, acks=acks)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert harness.write("t", b"x") == 0


@pytest.mark.parametrize("acks", [1, -1])
def test_acknowledged_is_durable_and_readable(acks: int) -> None:
    """With acks 1 as well: Kafka's leader has it in its log then, where its consumers can read it."""
    harness = Harness()
    harness.create("t")
    harness.hold()
    answers = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: GOOD}, acks=acks), version=12)
    harness.node.settle()
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    assert (answers, partition.log.high_watermark) == ([], 0)
    harness.let_go()
    assert answers[0].responses[0].partition_responses[0].base_offset == 0
    assert partition.log.high_watermark == 3


def test_acks_0_is_never_answered_and_an_error_closes_the_connection() -> None:
    harness = Harness()
    harness.create("t")

    def ask(records: dict[int, bytes | None]) -> object:
        return harness.ask(ApiKey.PRODUCE, produce_request("t", records, acks=0), version=12)

    assert ask({0: GOOD}) is NoResponse.NO_OP
    assert ask({0: GOOD, 1: GOOD}) is NoResponse.CLOSE_CONNECTION
    assert harness.write("t", b"x") == 6, "what could be written was"


@pytest.mark.parametrize("acks", [1, -1])
@pytest.mark.parametrize(
    ("timeout_ms", "waited_ms", "codes"),
    [
        (9000, 8999, []),
        (9000, 9000, [7]),
        (9000, 9001, [7]),
        (1, 4999, []),
        (0, 4999, []),
        (0, 5000, [7]),
        (-1, 5000, [7]),
    ],
)
def test_deadline(acks: int, timeout_ms: int, waited_ms: int, codes: list[int]) -> None:
    """A flush has five seconds at least: Kafka's append to the leader's log has no deadline. Seen on 4.2.1 with 1, 0 and -1."""
    harness = Harness()
    harness.create("t")
    harness.hold()
    request = produce_request("t", {0: GOOD}, acks=acks, timeout_ms=timeout_ms)
    answers = harness.begin(ApiKey.PRODUCE, request, version=12)
    harness.node.advance(waited_ms)
    assert [a.responses[0].partition_responses[0].error_code for a in answers] == codes
    harness.let_go()
    assert len(answers) == 1, "answered once, late or not"


def test_at_the_deadline_each_partition_is_told_its_own_outcome() -> None:
    harness = Harness()
    harness.create("t", 2)
    partition = harness.broker.partitions.find("t", 1)
    assert partition is not None
    partition.log.hold_flush = lambda _partition, _go: True
    answers = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: GOOD, 1: GOOD}, timeout_ms=9_000), version=12)
    harness.node.advance(9_001)
    (answer,) = answers
    assert [each.error_code for each in answer.responses[0].partition_responses] == [0, ErrorCode.REQUEST_TIMED_OUT]


def test_deleted_while_waiting() -> None:
    harness = Harness()
    harness.create("t")
    answers = harness.begin(ApiKey.PRODUCE, produce_request("t", {0: GOOD}), version=12)
    partition = harness.broker.partitions.find("t", 0)
    assert partition is not None
    partition.on_deleted()
    assert [a.responses[0].partition_responses[0].error_code for a in answers] == [3]


def test_partition_that_is_named_twice_takes_the_last_entry() -> None:
    harness = Harness()
    harness.create("t")
    data = [m.ProduceRequestPartitionProduceData(index=0, records=sent) for sent in (batch(b"a"), batch(b"b"))]
    topics = [m.ProduceRequestTopicProduceData(name="t", partition_data=data)]
    request = m.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics)
    response = harness.ask(ApiKey.PRODUCE, request, version=12)
    assert len(response.responses[0].partition_responses) == 1
    assert [record.value for record in read_records(stored_bytes(harness))] == [b"b"]


def test_topic_ids_since_version_13() -> None:
    harness = Harness()
    known, unknown = harness.create("t"), UUID(int=5)
    data = [m.ProduceRequestPartitionProduceData(index=0, records=GOOD)]
    topics = [m.ProduceRequestTopicProduceData(topic_id=topic_id, partition_data=data) for topic_id in (known, unknown)]
    request = m.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics)
    response = harness.ask(ApiKey.PRODUCE, request, version=13)
    seen = {topic.topic_id: topic.partition_responses[0].error_code for topic in response.responses}
    assert seen == {known: 0, unknown: ErrorCode.UNKNOWN_TOPIC_ID}


def test_without_a_transaction_coordinator_no_transaction_is_ongoing() -> None:
    harness = Harness()
    harness.create("t")
    records = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    request = produce_request("t", {0: records}, transactional_id="tx")
    (topic,) = harness.ask(ApiKey.PRODUCE, request, version=12).responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE


# fmt: off
INVALID = {  # what is counted as Kafka's InvalidOffsetOrSequenceRecordsPerSec
    "a sequence is missing":  (batch(b"v", producer_id=7, producer_epoch=0, base_sequence=-1), 1),
    "too few offsets":        (patched(23, b"\0\0\0\1"),                                     1),
    "no records":             (patched(57, b"\0\0\0\0"),                                     1),
    "a control batch":        (with_attributes(0x20),                                         0),
    "a pair":                 (GOOD + GOOD,                                                   0),
    "a sequence with a gap":  (batch(b"v", producer_id=7, producer_epoch=0, base_sequence=5), 0),
}
# fmt: on


@pytest.mark.parametrize("case", INVALID)
def test_invalid_offsets_and_sequences_are_counted(case: str) -> None:
    records, count = INVALID[case]
    harness = Harness()
    harness.create("t")
    harness.produce("t", {0: batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)})
    harness.produce("t", {0: records})
    assert harness.broker.apis[1].produce.invalid_offsets_or_sequences == count


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version(version: int) -> None:
    harness = Harness()
    harness.create("t")
    (answer,) = harness.produce("t", {0: GOOD}, version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert answer.log_start_offset == (0 if version >= 5 else -1)


def test_nothing_to_write_is_an_empty_answer() -> None:
    harness = Harness()
    request = m.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000)
    assert harness.ask(ApiKey.PRODUCE, request, version=12).responses == ()


def test_packed_anew_a_batch_is_still_of_its_transaction() -> None:
    sent = build_batch(
        [BatchRecord(b"k", b"v")], timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=3, transactional=True
    )
    rules = ProduceRules(
        is_compacted=False,
        is_log_append_time=False,
        timestamp_before_max_ms=LONG_MAX,
        timestamp_after_max_ms=LONG_MAX // 2,
        codec=int(Codec.ZSTD),
    )
    header = read_header(validate_batch(sent, read_header(sent), rules, 1))
    assert (header.codec, header.is_transactional) == (Codec.ZSTD, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 0, 3)
