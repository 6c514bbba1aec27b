"""Operations with many thousand records: they are replayed in slices, and take effect as a whole."""

import pytest

from kohort.machine.bulk import LONG_RECORDS_STEP, LongRecords
from kohort.machine.shard import Producer, Result
from kohort.model.errors import UnavailableError
from kohort.runtime.states import State
from kohort.wire.batches import read_header
from kohort.wire.compression import Codec
from tests.runtime.harness import Bench, Operation
from tests.runtime.shards import Put, TableShard

COUNT = 3 * LONG_RECORDS_STEP
TURNS = 7
"""Three slices of encoding, three of replay, and the append."""


def long_put(count: int = COUNT, *, poison_at: int | None = None) -> Operation:
    def operation(_: TableShard, _now_ms: int) -> Result[Put, str]:
        def make(number: int) -> Put:
            return Put("poison" if number == poison_at else f"n{number}", number)

        return Result(LongRecords(range(count), make), "ok")

    return operation


def begun(turns: int = 0, bench: Bench | None = None) -> Bench:
    """A bench with an operation of which some slices have run."""
    bench = bench or Bench().load()
    bench.write("long", long_put())
    for _ in range(turns):
        assert bench.node.run_later_turn()
    return bench


def test_records_are_made_when_they_are_read() -> None:
    records = LongRecords(range(5), str)
    assert (len(records), list(records), records[1], records[1:3]) == (5, ["0", "1", "2", "3", "4"], "1", ["1", "2"])
    assert [len(some) for some in LongRecords(range(COUNT + 1), str).slices()] == [LONG_RECORDS_STEP] * 3 + [1]


def test_a_long_operation_takes_several_turns_and_one_batch() -> None:
    bench = begun()
    for turn in range(TURNS):
        assert (bench.log.appends, bench.read()) == (0, {}), turn
        assert len(bench.shard.table) == max(0, turn - 3) * LONG_RECORDS_STEP, "a slice in each turn"
        assert bench.node.run_later_turn()
    assert not bench.node.run_later_turn()
    assert read_header(bench.log.batches[0]).record_count == COUNT
    assert (bench.read(), bench.answers["long"]) == ({}, [])
    bench.log.commit()
    assert (len(bench.read()), bench.answers["long"]) == (COUNT, ["ok"])


@pytest.mark.parametrize("turns", range(TURNS))
def test_the_operations_behind_it_wait(turns: int) -> None:
    bench = begun(turns)
    bench.write("behind", lambda shard, _: Result([Put("behind", len(shard.table))], "ok"))
    bench.write("reads", lambda shard, _: Result((), str(shard.table["behind"])))
    assert "behind" not in bench.shard.table
    bench.node.settle()
    assert [read_header(batch).record_count for batch in bench.log.batches] == [COUNT, 1]
    bench.log.commit()
    assert bench.answers == {"long": ["ok"], "behind": ["ok"], "reads": [str(COUNT)]}


def test_the_operations_before_it_are_committed_meanwhile_in_order() -> None:
    bench = Bench().load()
    bench.put("before", ("before", 1))
    begun(3, bench)
    assert [read_header(batch).record_count for batch in bench.log.batches] == [1], "a batch of its own"
    bench.log.commit()
    bench.node.settle()
    assert bench.answers == {"before": ["ok"], "long": []}
    bench.log.commit()
    assert bench.answers == {"before": ["ok"], "long": ["ok"]}


def test_another_partition_goes_on() -> None:
    bench = Bench().load().load(1)
    begun(4, bench)
    bench.write("other", lambda shard, _: shard.put("ok", ("a", 1)), partition=1)
    bench.node.run_turn()
    bench.logs[1].commit()
    assert bench.answers == {"long": [], "other": ["ok"]}


def test_long_operations_of_two_partitions_take_turns_one_after_the_other() -> None:
    bench = Bench().load().load(1)
    begun(bench=bench)
    bench.write("other", long_put(), partition=1)
    for _ in range(TURNS):
        assert bench.node.run_later_turn()
    assert [log.appends for log in bench.logs] == [1, 0]
    for _ in range(TURNS):
        assert bench.node.run_later_turn()
    assert [log.appends for log in bench.logs] == [1, 1]
    assert not bench.node.run_later_turn()


def test_a_second_long_operation_of_the_partition() -> None:
    bench = begun()
    bench.write("second", long_put())
    bench.put("third", ("third", 1))
    bench.node.settle()
    assert [read_header(batch).record_count for batch in bench.log.batches] == [COUNT, COUNT, 1]
    bench.log.commit()
    assert bench.answers == {"long": ["ok"], "second": ["ok"], "third": ["ok"]}


def test_a_long_operation_after_another_has_ended() -> None:
    bench = begun()
    bench.node.settle()
    bench.write("second", long_put())
    bench.node.settle()
    bench.log.commit()
    assert bench.answers == {"long": ["ok"], "second": ["ok"]}


def test_a_long_operation_that_fails_takes_back_what_it_did() -> None:
    bench = Bench(batch_bytes_max=30_000).load()

    def operation(shard: TableShard, _: int) -> Result[Put, str]:
        shard.parked.put(7, None)
        return Result(LongRecords(range(COUNT), lambda number: Put(f"n{number}", number)), "ok")

    bench.write("long", operation)
    bench.node.settle()
    assert bench.answers == {"long": ["MESSAGE_TOO_LARGE"]}
    assert len(bench.shard.parked) == 0


@pytest.mark.parametrize(("codec", "answer"), [(Codec.NONE, "MESSAGE_TOO_LARGE"), (Codec.GZIP, "ok")])
def test_records_that_do_not_fit_into_a_batch(codec: Codec, answer: str) -> None:
    bench = Bench(batch_bytes_max=30_000, codec=codec).load()
    bench.put("before", ("before", 1))
    begun(bench=bench)
    bench.put("behind", ("behind", 1))
    bench.node.settle()
    bench.log.commit()
    assert bench.answers == {"before": ["ok"], "long": [answer], "behind": ["ok"]}
    assert len(bench.read()) == (2 if answer != "ok" else COUNT + 2)


def test_a_record_that_cannot_be_replayed() -> None:
    bench = Bench().load()
    bench.put("before", ("before", 1))
    bench.write("long", long_put(poison_at=COUNT - 1))
    bench.put("behind", ("behind", 1))
    bench.node.settle()
    bench.log.commit()
    assert bench.answers == {"before": ["ok"], "long": ["UNKNOWN_SERVER_ERROR"], "behind": ["ok"]}
    assert bench.read() == bench.shard.table == {"before": 1, "behind": 1}


@pytest.mark.parametrize("turns", [0, 5])
def test_an_append_that_fails(turns: int) -> None:
    bench = begun(turns)
    bench.log.fail_next_append = UnavailableError("no disk")
    bench.put("behind", ("behind", 1))
    bench.node.settle()
    bench.log.commit()
    assert bench.answers == {"long": ["UnavailableError: no disk"], "behind": ["ok"]}
    assert bench.read() == bench.shard.table == {"behind": 1}


def test_an_earlier_batch_that_cannot_be_appended_fails_it() -> None:
    bench = Bench().load()
    bench.put("before", ("before", 1))
    bench.log.fail_next_append = UnavailableError("no disk")
    bench.write("long", long_put())
    bench.node.settle()
    bench.log.commit()
    assert bench.answers == {"before": ["UnavailableError: no disk"], "long": ["UnavailableError: no disk"]}
    assert bench.shard.table == {}


@pytest.mark.parametrize("turns", range(TURNS))
def test_an_unload_in_the_midst(turns: int) -> None:
    bench = begun(turns)
    bench.put("behind", ("behind", 1))
    bench.runtime.unload(0, None)
    assert bench.answers == {"long": ["NOT_COORDINATOR"], "behind": ["NOT_COORDINATOR"]}
    bench.node.settle()
    assert bench.log.appends == 0
    bench.load(leader_epoch=1)
    bench.put("after", ("after", 1))
    bench.node.settle()
    bench.log.commit()
    assert (bench.answers["after"], bench.read()) == (["ok"], {"after": 1})


def test_another_writer_of_the_partition() -> None:
    bench = begun(TURNS - 1)
    bench.put("behind", ("behind", 1))
    bench.log.shift_next_append = 1
    bench.node.settle()
    assert bench.answers["long"] == ["NOT_COORDINATOR"]
    assert bench.state() is State.ACTIVE, "the shard was loaded again"


def test_another_writer_that_is_noticed_at_the_batch_before_it() -> None:
    """The append of the earlier batch unloads the shard; the long operation must not be running then."""
    bench = Bench().load()
    bench.put("before", ("before", 1))
    bench.log.shift_next_append = 1
    bench.write("long", long_put())
    bench.put("behind", ("behind", 1))
    assert bench.answers == {name: ["NOT_COORDINATOR"] for name in ("before", "long", "behind")}
    bench.node.settle()
    assert bench.state() is State.ACTIVE, "the shard was loaded again"
    bench.write("later", long_put())
    bench.node.settle()
    bench.log.commit()
    assert bench.answers["later"] == ["ok"]


def test_a_long_operation_in_a_transaction() -> None:
    bench = Bench().load()
    noted: list[str] = bench.answers.setdefault("long", [])
    bench.put("before", ("before", 1))
    response = bench.runtime.write_transactional(0, Producer("t", 7, 3), long_put(), noted.append, str)
    assert response is None
    bench.put("behind", ("behind", 1))
    bench.node.settle()
    bench.log.commit()
    headers = [read_header(batch) for batch in bench.log.batches]
    assert [(header.record_count, header.producer_id, header.producer_epoch) for header in headers] == [
        (1, -1, -1),
        (COUNT, 7, 3),
        (1, -1, -1),
    ]
    assert bench.answers == {"before": ["ok"], "long": ["ok"], "behind": ["ok"]}
    assert (len(bench.shard.pending[7]), set(bench.shard.producers)) == (COUNT, {(7, 3)})
