"""When a batch is appended, and what does not fit; the numbers in brackets are the rows of Kafka's own test scenarios."""

import random

import pytest

from kohort.machine.shard import Result
from kohort.model.errors import UnavailableError
from kohort.wire.batches import read_header
from kohort.wire.compression import Codec
from tests.runtime.harness import Bench


def test_with_a_linger_of_none_every_write_is_a_batch() -> None:  # [9]
    bench = Bench(linger_ms=0).load()
    bench.put("one", ("a", 1), ("b", 1))
    bench.put("two", ("c", 1))
    assert (bench.epochs(), bench.log.end_offset) == ((0, 2), 3)
    bench.log.commit(2)
    assert bench.answers == {"one": ["ok"], "two": []}


@pytest.mark.parametrize(("waited_ms", "appends"), [(9, 0), (10, 1), (11, 1)])
def test_a_fixed_linger_ends_by_its_timer(waited_ms: int, appends: int) -> None:  # [42]
    bench = Bench(linger_ms=10).load()
    bench.put("a", ("a", 1))
    bench.node.run_turn()
    assert bench.shard.table == {"a": 1}, "replayed at once"
    bench.node.advance(waited_ms)
    assert bench.log.appends == appends


def test_a_batch_that_is_full_does_not_linger() -> None:  # [42]
    bench = Bench(linger_ms=10, batch_bytes_max=61 + 4 * 48).load()
    name = "x" * 26
    for number in range(4):
        assert bench.log.appends == 0
        bench.put(f"w{number}", (name, number))
    assert bench.log.appends == 1, "the fourth fills it"
    assert read_header(bench.log.batches[0]).record_count == 4
    bench.put("w4", (name, 4))
    bench.node.advance(11)
    assert bench.log.appends == 2
    bench.log.commit()
    assert all(answers == ["ok"] for answers in bench.answers.values())


def test_a_write_after_the_linger_takes_the_batch_along() -> None:  # [L2]
    bench = Bench(linger_ms=10).load()
    bench.put("a", ("a", 1))
    # The clock has moved on, and the timer's turn has not come: the thread was busy.
    bench.node.clock.set(bench.node.clock.now_ms() + 10)
    bench.put("b", ("b", 1))
    assert [read_header(batch).record_count for batch in bench.log.batches] == [2]


def test_the_timer_of_an_old_batch_leaves_a_new_one_alone() -> None:  # [L6]
    bench = Bench(linger_ms=10, batch_bytes_max=61 + 48).load()
    bench.put("fills", ("x" * 26, 1))
    bench.node.advance(5)
    bench.put("opens", ("y", 1))
    bench.node.advance(9)
    assert bench.log.appends == 1
    bench.node.advance(1)
    assert bench.log.appends == 2


def test_a_response_from_uncommitted_state_waits_with_its_batch() -> None:  # [L5]
    bench = Bench(linger_ms=10).load()
    bench.put("a", ("a", 1))
    bench.write("reads", lambda shard, _: Result((), f"a is {shard.table['a']}"))
    bench.log.commit()
    assert bench.answers["reads"] == []
    bench.node.advance(10)
    bench.log.commit()
    assert bench.answers["reads"] == ["a is 1"]


def test_a_defect_in_one_partition_does_not_stop_the_batches_of_others(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench().load(0).load(1)
    bench.put("a", ("a", 1))
    bench.write("b", lambda shard, _: shard.put("ok", ("b", 1)), partition=1)
    bench.log.fail_next_append = UnavailableError("no disk")
    bench.shards[0].registry.delete(0)  # which the failed batch is reverted to
    bench.node.run_turn()
    assert "shard.flush_failed partition=state-0" in caplog.text
    assert bench.logs[1].appends == 1


def test_a_batch_may_be_as_large_as_the_topic_allows() -> None:  # [41]
    bench = Bench().load()
    names = [f"{number:0>10000}" for number in range(100)]
    bench.put("big", *((name, 1) for name in names))
    bench.node.run_turn()
    assert len(bench.log.batches) == 1
    assert len(bench.log.batches[0]) > 1_000_000
    bench.log.commit()
    assert bench.answers["big"] == ["ok"]


def test_what_is_too_large_leaves_open_work_alone() -> None:  # [43, L5]
    bench = Bench(linger_ms=10, batch_bytes_max=300).load()
    bench.put("fits", ("a", 1))
    bench.put("too large", ("b" * 200, 1), ("c" * 200, 1))
    assert bench.answers == {"fits": [], "too large": ["MESSAGE_TOO_LARGE"]}
    assert bench.log.appends == 0
    bench.node.advance(10)
    bench.log.commit()
    assert bench.answers["fits"] == ["ok"]


def test_when_the_append_fails_all_in_the_batch_fail() -> None:  # [44]
    bench = Bench(linger_ms=10).load()
    for number in range(4):
        bench.put(f"w{number}", (f"k{number}", number))
    bench.log.fail_next_append = UnavailableError("gone")
    bench.node.advance(10)
    assert all(answers == ["UnavailableError: gone"] for answers in bench.answers.values())
    assert bench.shard.table == {}
    assert bench.epochs() == ()


def test_when_a_replay_fails_earlier_writes_of_the_batch_fail_too() -> None:  # [45]
    bench = Bench(linger_ms=10).load()
    bench.put("earlier", ("a", 1))
    bench.put("fails", ("b", 1), ("poison", 1))
    assert "poison" in bench.answers["earlier"][0]
    assert bench.answers["fails"] == ["UNKNOWN_SERVER_ERROR"]
    assert bench.shard.table == {}
    bench.node.advance(100)
    assert bench.log.appends == 0


def test_an_operation_that_saw_what_could_not_be_written_fails_with_it() -> None:
    bench = Bench(batch_bytes_max=61 + 48).load()
    bench.put("first", ("x" * 20, 1))
    bench.log.fail_next_append = UnavailableError("gone")
    # It does not fit beside the first, whose append fails: it was computed from a state that never was.
    bench.write("second", lambda shard, _: shard.put("ok", ("y" * 20, shard.table["x" * 20] + 1)))
    assert bench.answers == {"first": ["UnavailableError: gone"], "second": ["UnavailableError: gone"]}
    assert bench.shard.table == {}


def test_a_result_in_pieces_is_answered_with_its_last_piece() -> None:  # [49]
    bench = Bench(linger_ms=10, batch_bytes_max=61 + 3 * 48).load()
    puts = [("x" * 25 + str(number), number) for number in range(4)]
    bench.write("all", lambda shard, _: shard.put("ok", *puts, is_atomic=False))
    assert [read_header(batch).record_count for batch in bench.log.batches] == [3]
    bench.log.commit()
    assert bench.answers["all"] == []
    bench.node.advance(10)
    bench.log.commit()
    assert bench.answers["all"] == ["ok"]
    assert bench.read() == dict(puts)


def test_batches_of_pieces_alone_are_written_while_others_wait() -> None:  # [49]
    """Nobody waits for the first of them; who waits already is timed as before."""
    bench = Bench(linger_ms=0, batch_bytes_max=61 + 3 * 48).load()
    bench.put("before", ("b", 1))
    puts = [("x" * 25 + str(number), number) for number in range(8)]
    bench.write("all", lambda shard, _: shard.put("ok", *puts, is_atomic=False))
    assert [read_header(batch).record_count for batch in bench.log.batches] == [1, 3, 3, 2]
    bench.log.commit()
    assert bench.answers == {"before": ["ok"], "all": ["ok"]}
    assert bench.read() == {"b": 1, **dict(puts)}


def test_a_piece_that_no_batch_can_hold_fails_alone() -> None:  # [50]
    bench = Bench(linger_ms=10, batch_bytes_max=200).load()
    bench.put("before", ("a", 1))
    bench.write("oversized", lambda shard, _: shard.put("ok", ("b" * 400, 1), is_atomic=False))
    assert bench.answers["oversized"][0].startswith("RecordTooLargeError")
    bench.log.commit()
    assert bench.answers["before"] == ["ok"]
    assert bench.read() == {"a": 1}
    assert bench.shard.table == {"a": 1}


def test_pieces_that_could_not_be_written_are_gone_and_written_ones_stay() -> None:  # [51]
    bench = Bench(linger_ms=10, batch_bytes_max=61 + 3 * 48).load()
    puts = [("x" * 25 + str(number), number) for number in range(4)]
    bench.write("all", lambda shard, _: shard.put("ok", *puts, is_atomic=False))
    bench.put("beside", ("b", 1))
    bench.log.fail_next_append = UnavailableError("gone")
    bench.node.advance(10)
    assert bench.answers == {"all": ["UnavailableError: gone"], "beside": ["UnavailableError: gone"]}
    bench.log.commit()
    assert bench.read() == bench.shard.table == dict(puts[:3])


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_compresses_below_the_limit_is_taken(codec: Codec) -> None:  # [L7]
    bench = Bench(codec=codec, batch_bytes_max=400).load()
    bench.put("small", ("a", 1))
    bench.put("large", ("b" * 2000, 1))
    bench.put("behind", ("c", 1))
    bench.node.run_turn()
    bench.log.commit()
    assert [read_header(batch).codec for batch in bench.log.batches] == [codec] * 3, "the large one has its own"
    assert {header.base_sequence for header in map(read_header, bench.log.batches)} == {0}
    assert bench.read() == {"a": 1, "b" * 2000: 1, "c": 1}
    assert all(answers == ["ok"] for answers in bench.answers.values())


def test_what_does_not_compress_below_the_limit_fails_alone() -> None:  # [L7]
    bench = Bench(codec=Codec.GZIP, batch_bytes_max=400).load()
    noise = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz", k=3000))
    bench.put("small", ("a", 1))
    bench.put("noise", (noise, 1))
    bench.node.run_turn()
    bench.log.commit()
    assert bench.answers["noise"][0].startswith("RecordTooLargeError")
    assert bench.answers["small"] == ["ok"]
    assert bench.shard.table == {"a": 1}


def test_one_append_has_one_time() -> None:
    bench = Bench(linger_ms=10).load()
    opened_ms = bench.node.clock.now_ms()
    bench.put("a", ("a", 1))
    bench.node.advance(3)
    bench.put("b", ("b", 1))
    bench.node.advance(7)
    header = read_header(bench.log.batches[0])
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (opened_ms, opened_ms, 2)


def test_a_linger_is_adaptive_none_or_some() -> None:  # [L6]
    with pytest.raises(ValueError, match="linger_ms is -2"):
        Bench(linger_ms=-2)
