"""Large batches: validated in steps, one at a time, with the result of the validation at once."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kohort.broker.ports import NoResponse, at_once
from kohort.broker.records.large_batches import LargeBatches
from kohort.broker.records.validation import AT_ONCE_RECORDS, LargeBatch, validate_batch
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, read_header
from kohort.wire.compression import Codec
from tests.broker.harness import Harness, batch, produce_request
from tests.broker.records.test_produce_verification import Bench, codes
from tests.broker.records.test_validation import HOUR_MS, NOW_MS, rules, taken
from tests.wire.hostile_batches import batch_of, corpus

RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "compacted": {"is_compacted": True},
    "log append time": {"is_log_append_time": True},
    "old records refused": {"timestamp_before_max_ms": HOUR_MS},
    "lz4": {"codec": int(Codec.LZ4)},
    "uncompressed": {"codec": int(Codec.NONE)},
}
KEYED, NOT_KEYED = BatchRecord(b"k", b"v" * 50), BatchRecord(None, b"v")
BATCHES = {
    "keys": [KEYED] * 3,
    "a record without key": [KEYED, NOT_KEYED],
    "an old record": [KEYED, BatchRecord(b"k", b"v", timestamp_ms=NOW_MS - 2 * HOUR_MS)],
    "a record of the future": [KEYED, BatchRecord(b"k", b"v", timestamp_ms=NOW_MS + 2 * HOUR_MS)],
    "a large value": [BatchRecord(b"k", bytes(20_000), (("h", b"x"),))],
}


def outcome(validated: Callable[[], Any]) -> Any:
    try:
        return bytes(validated())
    except CoordinatorError as error:
        return error.code, error.message, getattr(error, "record_errors", None)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("name", RULES)
def test_in_steps_as_at_once(codec: Codec, name: str) -> None:
    large = LargeBatches(at_once)
    for records in BATCHES.values():
        sent = build_batch(records, timestamp_ms=NOW_MS, compression=codec)
        header, topic = read_header(sent), rules(**RULES[name])
        expected = outcome(partial(validate_batch, sent, header, topic, NOW_MS, where="t-0"))
        assert outcome(partial(taken, large.validate(sent, header, topic, NOW_MS, "t-0"))) == expected


def test_the_hostile_corpus_is_refused_or_large_at_once_and_refused_in_steps() -> None:
    large = LargeBatches(at_once)
    for hostile in corpus():
        sent = batch_of(hostile.packed, hostile.codec, 3)
        header = read_header(sent)
        with pytest.raises((CoordinatorError, LargeBatch)):
            validate_batch(sent, header, rules(), NOW_MS)
        with pytest.raises(CoordinatorError):
            taken(large.validate(sent, header, rules(), NOW_MS, ""))


def test_one_at_a_time_in_the_order_of_arrival() -> None:
    running: list[tuple[Callable[[], None], Callable[[], None]]] = []
    large = LargeBatches(lambda work, done: running.append((work, done)))
    sent = build_batch([KEYED], timestamp_ms=NOW_MS, compression=Codec.ZSTD)
    works = [large.validate(sent, read_header(sent), rules(), NOW_MS, "") for _ in range(3)]
    resumed: list[int] = []
    for number, work in enumerate(works):
        wait = next(work)
        assert wait is not None
        wait(lambda number=number: resumed.append(number))  # type: ignore[misc]
    assert len(running) == 1
    assert not resumed
    works[0].close()
    assert resumed == [1]
    next(works[1])
    works[2].close()
    works[1].close()


class Waiting:
    """A broker whose other thread works when the test says so."""

    def __init__(self, **settings: Any) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.harness = Harness(elsewhere=lambda work, done: self.jobs.append((work, done)), **settings)
        self.harness.create("t", 2)

    def begin(self, records: dict[int, bytes | None], **what: Any) -> list[Any]:
        answers = self.harness.begin(ApiKey.PRODUCE, produce_request("t", records, **what), version=12)
        self.harness.node.settle()
        return answers

    def work(self) -> None:
        while self.jobs:
            work, done = self.jobs.pop(0)
            work()
            done()
        self.harness.node.settle()


def large(codec: Codec = Codec.ZSTD, size: int = 3 << 20, **what: Any) -> bytes:
    return batch(bytes(size), compression=codec, **what)


def answered(answers: list[Any]) -> list[tuple[int, int, int]]:
    (answer,) = answers
    partitions = answer.responses[0].partition_responses
    return [(each.index, each.error_code, each.base_offset) for each in partitions]


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_large_batch_is_appended_after_its_decompression(codec: Codec) -> None:
    bench = Waiting()
    answers = bench.begin({0: batch(b"a"), 1: large(codec)})
    assert not answers
    assert len(bench.jobs) == 1
    bench.work()
    assert answered(answers) == [(0, 0, 0), (1, 0, 0)]
    assert bench.harness.broker.partitions.find("t", 1).log.high_watermark == 1  # type: ignore[union-attr]


def test_others_append_meanwhile_to_the_same_partition() -> None:
    bench = Waiting()
    first = bench.begin({0: large()})
    assert answered(bench.begin({0: batch(b"small")})) == [(0, 0, 0)]
    bench.work()
    assert answered(first) == [(0, 0, 1)]


def test_a_batch_that_becomes_durable_meanwhile_is_acknowledged() -> None:
    """The high watermark passes the first batch before the second one is appended."""
    bench = Waiting()
    answers = bench.begin({0: batch(b"a"), 1: large()})
    assert bench.harness.broker.partitions.find("t", 0).log.high_watermark == 1  # type: ignore[union-attr]
    bench.work()
    assert answered(answers) == [(0, 0, 0), (1, 0, 0)]


def test_a_topic_that_is_deleted_meanwhile() -> None:
    bench = Waiting()
    answers = bench.begin({0: batch(b"a"), 1: large()})
    deleted = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name="t")], timeout_ms=1000)
    bench.harness.ask(ApiKey.DELETE_TOPICS, deleted)
    bench.harness.create("t", 2)
    bench.work()
    assert [code for _, code, _ in answered(answers)] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert bench.harness.broker.partitions.find("t", 1).log.end_offset == 0  # type: ignore[union-attr]


@pytest.mark.parametrize(("size", "expected"), [(3 << 20, NoResponse.NO_OP), (200 << 20, NoResponse.CLOSE_CONNECTION)])
def test_without_acks(size: int, expected: NoResponse) -> None:
    bench = Waiting()
    answers = bench.begin({0: large(size=size)}, acks=0)
    assert not answers
    bench.work()
    assert answers == [expected]


def test_a_sequence_is_checked_when_the_batch_is_appended() -> None:
    bench = Waiting()
    what: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    first = bench.begin({0: large(base_sequence=0, **what)})
    again = bench.begin({0: large(base_sequence=0, **what)})
    bench.work()
    assert answered(first) == answered(again) == [(0, 0, 0)]
    bench.begin({0: large(base_sequence=5, **what)})
    bench.work()
    assert bench.harness.broker.partitions.find("t", 0).log.end_offset == 1  # type: ignore[union-attr]


def test_many_records_are_validated_in_steps_on_the_loop() -> None:
    bench = Waiting()
    answers = bench.begin({0: batch(*[b"v"] * (AT_ONCE_RECORDS + 1))})
    assert not bench.jobs
    assert answered(answers) == [(0, 0, 0)]


def test_batches_of_one_transactional_id_keep_their_order() -> None:
    """The second request is verified while the batch of the first one is decompressed."""
    jobs: list[tuple[Callable[[], None], Callable[[], None]]] = []
    bench = Bench(ErrorCode.NONE, elsewhere=lambda work, done: jobs.append((work, done)))
    what: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0, "transactional": True}
    first = bench.begin(large(base_sequence=0, **what))
    second = bench.begin(batch(b"b", base_sequence=1, **what))
    assert (first, second) == ([], [])
    while jobs:
        work, done = jobs.pop(0)
        work()
        done()
        bench.harness.node.settle()
    assert codes(first) == codes(second) == [0]
