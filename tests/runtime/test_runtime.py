"""What a coordinator runtime does, row by row; the numbers in brackets are the rows of Kafka's own test scenarios."""

import pytest

from kohort.machine.shard import Result
from kohort.machine.steps import Deadline, Operation
from kohort.model.errors import CoordinatorError, ErrorCode, UnavailableError
from kohort.runtime.states import State
from kohort.testing import deleted_topics
from kohort.wire.batches import read_header
from tests.runtime.harness import Bench, batch_of, explain
from tests.runtime.shards import Put, TableShard
from tests.wire.control_batches import control_batch

# -- load and unload [1-8, 10, 23, 26, 27, 37, 38, 47, 48] ---------------------------------------------------------


def test_a_partition_that_nobody_loaded_is_not_led_here() -> None:
    bench = Bench()
    bench.put("a", ("x", 1))
    assert bench.answers["a"] == ["NOT_COORDINATOR"]
    assert bench.read() == "NOT_COORDINATOR"


def test_while_loading_requests_are_refused_and_then_served() -> None:  # [1, 10, 23]
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.runtime.load(0, bench.log, 3)
    assert bench.state() is State.LOADING
    bench.put("early", ("x", 2))
    assert bench.answers["early"] == ["COORDINATOR_LOAD_IN_PROGRESS"]
    assert bench.read() == "COORDINATOR_LOAD_IN_PROGRESS"
    bench.node.settle()
    assert bench.state() is State.ACTIVE
    assert bench.read() == {"x": 1}
    assert bench.shard.loaded_at == bench.node.clock.now_ms()
    assert bench.shard.images == [bench.image]
    assert bench.log.listeners == 1


def test_an_empty_log_is_loaded_at_once() -> None:  # [38]
    bench = Bench()
    bench.runtime.load(0, bench.log, 0)
    assert bench.state() is State.ACTIVE


def test_a_load_that_fails_leaves_the_partition_failed_until_a_newer_epoch() -> None:  # [2, 4]
    bench = Bench()
    bench.log.append(batch_of([(b"poison", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.load(leader_epoch=1)
    assert bench.state() is State.FAILED
    assert bench.shard.is_unloaded
    bench.put("a", ("x", 1))
    assert bench.answers["a"] == ["NOT_COORDINATOR"]
    bench.log.log_start_offset = 1
    bench.log.append(batch_of([(b"x", b"7")]), leader_epoch=0)
    bench.log.commit()
    bench.load(leader_epoch=2)
    assert bench.read() == {"x": 7}, "the record that cannot be replayed is no longer in the log"


@pytest.mark.parametrize(("epoch", "shards"), [(0, 1), (1, 1), (2, 1)])
def test_only_a_first_load_loads(epoch: int, shards: int) -> None:  # [3]
    bench = Bench().load(leader_epoch=1)
    bench.load(leader_epoch=epoch)
    assert len(bench.shards) == shards


@pytest.mark.parametrize(("epoch", "is_gone"), [(0, False), (1, False), (2, True), (None, True)])
def test_an_unload_needs_a_newer_epoch_or_none(epoch: int | None, is_gone: bool) -> None:  # [5, 6, 8]
    bench = Bench().load(leader_epoch=1)
    bench.runtime.unload(0, epoch)
    assert (bench.state() is None) is is_gone
    assert bench.shard.is_unloaded is is_gone
    assert bench.log.listeners == (0 if is_gone else 1)


def test_unloading_what_is_unknown_makes_nothing() -> None:  # [7]
    bench = Bench()
    bench.runtime.unload(0, 5)
    assert bench.runtime.states() == {}


def test_unload_answers_everybody_and_ends_the_deadlines() -> None:  # [5, 26]
    bench = Bench().load()
    fired: list[int] = []

    def fire(_: TableShard, now_ms: int) -> Result[Put, None]:
        fired.append(now_ms)
        return Result()

    bench.write("parked", lambda shard, _: shard.park())
    bench.put("deferred", ("x", 1))
    bench.node.settle()
    bench.put("batched", ("y", 1))
    bench.write("arm", lambda _, __: Result((), "ok", deadlines=[Deadline(("t",), 10, Operation(fire))]))
    bench.runtime.unload(0, None)
    assert bench.answers == {name: ["NOT_COORDINATOR"] for name in ("parked", "deferred", "batched", "arm")}
    bench.node.advance(60_000)
    assert fired == []
    assert bench.answers["batched"] == ["NOT_COORDINATOR"], "answered once"


def test_a_shard_that_fails_to_say_goodbye_is_gone_all_the_same() -> None:  # [L3]
    bench = Bench().load()
    bench.put("a", ("rude", 1))
    bench.runtime.close()
    assert bench.runtime.states() == {}
    assert bench.answers["a"] == ["NOT_COORDINATOR"]


def test_the_end_of_an_old_load_never_activates_a_newer_context() -> None:
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.runtime.load(0, bench.log, 1)
    bench.runtime.unload(0, 2)
    bench.runtime.load(0, bench.log, 3)
    assert bench.state() is State.LOADING
    bench.node.settle()
    assert bench.state() is State.ACTIVE
    assert len(bench.shards) == 2
    assert bench.shards[0].loaded_at is None


def test_loading_keeps_the_newest_of_each_key_and_judges_transactions_by_their_markers() -> None:
    bench = Bench()
    for batch in (
        batch_of([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]),
        batch_of([(b"b", None), (b"\xff?", b"x"), (b"c", b"4")]),
        batch_of([(b"t", b"5")], producer_id=9),
        batch_of([(b"u", b"6")], producer_id=8),
        batch_of([(b"v", b"7")], producer_id=7),
        control_batch(producer_id=9, producer_epoch=0, committed=True, coordinator_epoch=0, timestamp_ms=0),
        control_batch(producer_id=8, producer_epoch=0, committed=False, coordinator_epoch=0, timestamp_ms=0),
    ):
        bench.log.append(batch, leader_epoch=0)
    bench.log.commit()
    bench.load()
    assert bench.read() == {"a": 3, "c": 4, "t": 5}
    assert list(bench.shard.pending) == [7]


def test_what_lies_above_the_high_watermark_is_loaded_but_not_shown() -> None:  # [37, 48]
    bench = Bench()
    bench.log.append(batch_of([(b"a", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.log.append(batch_of([(b"a", b"2")]), leader_epoch=0)
    bench.load()
    assert bench.shard.table == {"a": 2}
    assert bench.read() == {"a": 1}
    bench.write("waits", lambda _, __: Result((), "seen"))
    assert bench.answers["waits"] == []
    bench.log.commit()
    assert bench.answers["waits"] == ["seen"]
    assert bench.read() == {"a": 2}


def test_an_append_that_lands_elsewhere_reloads_the_shard() -> None:  # [47]
    bench = Bench().load()
    bench.put("before", ("a", 1))
    bench.node.settle()
    bench.log.commit()
    bench.log.shift_next_append = 1
    bench.put("lost", ("a", 2))
    bench.node.run_turn()
    assert bench.answers["lost"] == ["NOT_COORDINATOR"]
    assert bench.state() is State.FAILED
    bench.log.commit()
    bench.node.settle()
    assert bench.state() is State.ACTIVE
    assert len(bench.shards) == 2
    assert bench.read() == {"a": 2}


def test_every_active_shard_is_told_of_a_new_image() -> None:  # [27]
    bench = Bench().load()
    bench.put("a", ("gone", 1), ("stays", 1))
    delta = deleted_topics("gone")
    bench.runtime.on_image(delta)
    bench.node.settle()
    bench.log.commit()
    assert bench.read() == {"stays": 1}
    assert bench.shard.images == [bench.image, bench.image]
    assert bench.shard.deltas == [delta]
    assert bench.written()[-1] == (b"gone", None), "what the shard returned is in the log"


def test_an_image_that_comes_during_an_operation_waits_for_its_end() -> None:
    bench = Bench().load()

    def operation(shard: TableShard, _: int) -> Result[Put, str]:
        bench.runtime.on_image(deleted_topics("a"))
        assert shard.deltas == []
        return shard.put("ok", ("a", 1))

    bench.write("a", operation)
    assert len(bench.shard.deltas) == 1
    assert bench.shard.table == {}


def test_records_of_an_image_that_cannot_be_written_are_reverted() -> None:
    bench = Bench().load()
    bench.put("a", ("gone", 1))
    bench.node.settle()
    bench.log.commit()
    bench.log.fail_next_append = UnavailableError("offline")
    bench.runtime.on_image(deleted_topics("gone"))
    assert bench.shard.table == {}
    bench.node.settle()
    assert bench.shard.table == {"gone": 1}
    assert bench.state() is State.ACTIVE


# -- writing [9, 11-15] --------------------------------------------------------------------------------------------


def test_replies_leave_when_the_high_watermark_passes_their_records() -> None:  # [9]
    bench = Bench().load()
    bench.put("one", ("a", 1), ("b", 1))
    bench.node.run_turn()
    bench.put("two", ("c", 1))
    bench.node.run_turn()
    bench.write("three", lambda _, __: Result((), "nothing to write"))
    assert bench.answers == {"one": [], "two": [], "three": []}
    bench.log.commit(2)
    assert bench.answers == {"one": ["ok"], "two": [], "three": []}
    bench.log.commit(3)
    assert bench.answers == {"one": ["ok"], "two": ["ok"], "three": ["nothing to write"]}
    bench.write("four", lambda _, __: Result((), "at once"))
    assert bench.answers["four"] == ["at once"]


def test_what_arrives_in_one_turn_shares_a_batch() -> None:  # [L6]
    bench = Bench().load()
    for number in range(20):
        bench.put(f"w{number}", (f"k{number}", number))
    bench.write("empty", lambda _, __: Result((), "behind the batch"))
    assert bench.log.appends == 0
    bench.node.run_turn()
    assert bench.log.appends == 1
    assert len(bench.log.batches) == 1
    header = read_header(bench.log.batches[0])
    assert (header.producer_id, header.base_sequence, header.max_timestamp) == (-1, 0, bench.node.clock.now_ms())
    assert bench.answers["empty"] == []
    bench.log.commit()
    assert [bench.answers[f"w{number}"] for number in range(20)] == [["ok"]] * 20
    assert bench.answers["empty"] == ["behind the batch"]


def test_a_query_never_sees_what_is_not_committed() -> None:  # [22]
    bench = Bench().load()
    bench.put("a", ("x", 1))
    assert bench.shard.table == {"x": 1}
    assert bench.read() == {}
    bench.node.run_turn()
    assert bench.read() == {}
    bench.log.commit()
    assert bench.read() == {"x": 1}


def test_an_operation_that_refuses_leaves_nothing() -> None:  # [11]
    bench = Bench().load()

    def refuse(_: TableShard, __: int) -> Result[Put, str]:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)

    bench.write("refused", refuse)
    bench.node.run_turn()
    assert bench.answers["refused"] == ["ILLEGAL_GENERATION"]
    assert bench.log.appends == 0


def test_a_replay_that_fails_takes_the_whole_batch_back() -> None:  # [12, 45]
    bench = Bench().load()
    bench.put("kept", ("a", 1))
    bench.node.run_turn()
    bench.put("innocent", ("a", 2))
    bench.put("guilty", ("b", 1), ("poison", 1))
    assert bench.answers["guilty"] == ["UNKNOWN_SERVER_ERROR"]
    assert "InvariantError" in bench.answers["innocent"][0]
    assert bench.shard.table == {"a": 1}
    bench.put("after", ("c", 1))
    bench.node.run_turn()
    bench.log.commit()
    assert bench.read() == {"a": 1, "c": 1}
    assert bench.written() == [(b"a", b"1"), (b"c", b"1")]


def test_an_append_that_fails_takes_its_batch_back_and_nothing_else() -> None:  # [13, 44]
    bench = Bench().load()
    bench.put("kept", ("a", 1))
    bench.node.run_turn()
    bench.log.fail_next_append = UnavailableError("the disk is gone")
    bench.put("lost", ("a", 2))
    bench.put("lost too", ("b", 2))
    bench.node.run_turn()
    assert bench.answers["lost"] == bench.answers["lost too"] == ["UnavailableError: the disk is gone"]
    assert bench.shard.table == {"a": 1}
    bench.put("later", ("b", 3))
    bench.node.run_turn()
    bench.log.commit()
    assert bench.answers["kept"] == bench.answers["later"] == ["ok"]
    assert bench.read() == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("waited_ms", "answer"), [(4_999, []), (5_000, ["REQUEST_TIMED_OUT"]), (5_001, ["REQUEST_TIMED_OUT"])]
)
def test_a_write_that_is_not_committed_in_time_is_answered_but_stays(waited_ms: int, answer: list[str]) -> None:  # [14]
    bench = Bench().load()
    bench.put("a", ("x", 1))
    bench.node.run_turn()
    bench.node.advance(waited_ms)
    assert bench.answers["a"] == answer
    bench.log.commit()
    assert bench.answers["a"] == (answer or ["ok"]), "answered once"
    assert bench.read() == {"x": 1}


def test_read_all_answers_by_partition() -> None:  # [25]
    bench = Bench().load(0).load(1)
    for partition in (0, 1):
        bench.write(f"p{partition}", lambda shard, _: shard.put("ok", ("x", shard.partition)), partition)
    bench.node.run_turn()
    bench.logs[1].commit()
    bench.logs[0].commit()
    assert bench.runtime.read_all(lambda shard, offset: shard.table.get_at("x", offset), explain) == [0, 1]


# -- batches of limited size [42, 43, 49, 50] ----------------------------------------------------------------------


def test_a_full_batch_is_appended_and_another_opened() -> None:  # [42]
    bench = Bench(batch_bytes_max=400).load()
    for number in range(8):
        bench.put(f"w{number}", (f"{number}" * 60, 1))
    assert bench.log.appends >= 1
    bench.node.run_turn()
    bench.log.commit()
    assert len(bench.log.batches) >= 2
    assert all(bench.answers[f"w{number}"] == ["ok"] for number in range(8))
    assert len(bench.read()) == 8


def test_what_no_batch_can_hold_is_refused_before_it_is_replayed() -> None:  # [43]
    bench = Bench(batch_bytes_max=300).load()
    bench.put("fits", ("a", 1))
    bench.put("too large", ("b" * 200, 1), ("c" * 200, 1))
    assert bench.answers["too large"] == ["MESSAGE_TOO_LARGE"]
    bench.node.run_turn()
    bench.log.commit()
    assert bench.answers["fits"] == ["ok"]
    assert bench.read() == {"a": 1}


def test_a_result_that_is_not_atomic_is_cut_between_records() -> None:  # [49]
    bench = Bench(batch_bytes_max=300).load()
    puts = [(f"{number}" * 90, number) for number in range(6)]
    bench.write("sweep", lambda shard, _: shard.put("ok", *puts, is_atomic=False))
    bench.node.run_turn()
    bench.log.commit()
    assert bench.answers["sweep"] == ["ok"]
    assert bench.read() == dict(puts)
    assert len(bench.log.batches) > 1


# -- parked requests -----------------------------------------------------------------------------------------------


def test_parked_requests_are_released_with_the_records_of_the_result() -> None:
    bench = Bench().load()
    bench.write("parked", lambda shard, _: shard.park())
    bench.write("releaser", lambda shard, _: shard.release("done", ("x", 1)))
    bench.node.run_turn()
    assert bench.answers == {"parked": [], "releaser": []}
    bench.log.commit()
    assert bench.answers == {"parked": ["done"], "releaser": ["done"]}


def test_a_release_without_records_leaves_at_once() -> None:
    bench = Bench().load()
    bench.write("parked", lambda shard, _: shard.park())
    bench.write("releaser", lambda shard, _: shard.release("done"))
    assert bench.answers == {"parked": ["done"], "releaser": ["done"]}


def test_a_reply_may_cause_the_next_operation() -> None:
    bench = Bench().load()
    chain: list[str] = []

    def again(response: str) -> None:
        chain.append(response)
        if len(chain) < 5:
            answer = bench.runtime.write(
                0, lambda shard, _: shard.put(f"n{len(chain)}", ("x", len(chain))), again, explain
            )
            assert answer is None

    bench.runtime.write(0, lambda shard, _: shard.put("n0", ("x", 0)), again, explain)
    for _ in range(5):
        bench.node.settle()
        bench.log.commit()
    assert chain == ["n0", "n1", "n2", "n3", "n4"]
    assert bench.read() == {"x": 4}


# -- queries -------------------------------------------------------------------------------------------------------


def test_a_query_that_fails_is_answered_with_its_error() -> None:  # [24]
    bench = Bench().load()

    def query(_: TableShard, __: int) -> str:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND)

    assert bench.runtime.read(0, query, explain) == "GROUP_ID_NOT_FOUND"
    assert bench.runtime.read_all(query, explain) == ["GROUP_ID_NOT_FOUND"]
    with pytest.raises(CoordinatorError):
        bench.runtime.query(0, query)


def test_a_completion_that_fails_stops_no_other() -> None:  # [L4]
    bench = Bench().load()
    errors: list[str] = []

    def spoilt(error: Exception) -> str:
        errors.append(str(error))
        if len(errors) == 1:
            raise RuntimeError("spoilt")
        return "told"

    bench.put("before", ("a", 1))
    bench.write("spoilt", lambda _, __: Result([Put("x", 1)], "ok", on_error=spoilt))
    bench.put("behind", ("b", 1))
    bench.log.fail_next_append = UnavailableError("full")
    bench.node.settle()
    answer = "UnavailableError: full"
    assert (bench.answers["before"], bench.answers["behind"]) == ([answer], [answer])
    assert errors == ["full"]
