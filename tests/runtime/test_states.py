"""The states of a partition and what moves through them; the numbers in brackets are the rows of Kafka's own scenarios."""

import itertools

import pytest

from kohort.machine.shard import Result
from kohort.model.errors import InvariantError
from kohort.model.image import ImageDelta
from kohort.runtime.append.position import Position
from kohort.runtime.context import Context
from kohort.runtime.metrics import ShardMetrics
from kohort.runtime.states import NEXT, State
from tests.runtime.harness import Bench, batch_of
from tests.runtime.shards import Put, TableShard

# fmt: off
MAY_GO = {          # INITIAL  LOADING  ACTIVE   FAILED   CLOSED
    State.INITIAL: (   False,    True,  False,   False,    True),
    State.LOADING: (   False,   False,   True,    True,    True),
    State.ACTIVE:  (   False,   False,  False,    True,    True),
    State.FAILED:  (   False,    True,  False,   False,    True),
    State.CLOSED:  (   False,   False,  False,   False,   False),
}
# fmt: on
WAY_TO = {
    State.INITIAL: [],
    State.LOADING: [State.LOADING],
    State.ACTIVE: [State.LOADING, State.ACTIVE],
    State.FAILED: [State.LOADING, State.FAILED],
    State.CLOSED: [State.CLOSED],
}


def test_every_pair_of_states_is_decided() -> None:
    assert set(MAY_GO) == set(NEXT) == set(State)


@pytest.mark.parametrize(("old", "new"), list(itertools.product(State, State)))
def test_a_context_goes_where_the_diagram_has_an_arrow(old: State, new: State) -> None:
    bench = Bench()
    metrics = ShardMetrics()
    context = Context(bench.runtime._environment, 0, bench.runtime._queues.executor(0), metrics)
    for state in WAY_TO[old]:
        context.move_to(state)
    metrics.transitions.clear()
    if MAY_GO[old][list(State).index(new)]:
        context.move_to(new)
        assert context.state is new
        assert metrics.transitions == {(old, new): 1}
    else:
        with pytest.raises(InvariantError, match=f"cannot go from {old.value} to {new.value}"):
            context.move_to(new)
        assert context.state is old
        assert metrics.transitions == {}


def test_every_transition_is_counted() -> None:  # [35]
    bench = Bench()
    bench.log.append(batch_of([(b"poison", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.runtime.load(0, bench.log, 1)
    assert bench.runtime.metrics().partitions == {State.LOADING: 1, State.ACTIVE: 0, State.FAILED: 0}
    bench.node.settle()
    assert bench.runtime.metrics().partitions == {State.LOADING: 0, State.ACTIVE: 0, State.FAILED: 1}
    bench.log.log_start_offset = 1
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.load(leader_epoch=2)
    assert bench.runtime.metrics().partitions == {State.LOADING: 0, State.ACTIVE: 1, State.FAILED: 0}
    bench.runtime.close()
    metrics = bench.runtime.metrics()
    assert metrics.partitions == {State.LOADING: 0, State.ACTIVE: 0, State.FAILED: 0}
    assert metrics.transitions == {
        (State.INITIAL, State.LOADING): 1,
        (State.LOADING, State.FAILED): 1,
        (State.FAILED, State.LOADING): 1,
        (State.LOADING, State.ACTIVE): 1,
        (State.ACTIVE, State.CLOSED): 1,
    }


def test_a_higher_epoch_while_active_is_kept_without_a_load() -> None:  # [3]
    bench = Bench().load(leader_epoch=1)
    bench.load(leader_epoch=4)
    assert len(bench.shards) == 1
    bench.runtime.unload(0, 4)
    assert bench.state() is State.ACTIVE
    bench.put("a", ("x", 1))
    bench.node.run_turn()
    assert bench.log.leader_epoch == 4


def test_a_shard_knows_its_coordinator_epoch_before_the_first_record() -> None:
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=3)
    bench.log.commit()
    bench.load(leader_epoch=5)
    assert bench.shard.coordinator_epochs == [5]
    assert bench.shard.replayed_under == [5]


def test_a_shard_is_told_when_its_coordinator_epoch_rises() -> None:
    bench = Bench().load(leader_epoch=1)
    for epoch in (4, 4, 2, 6):
        bench.load(leader_epoch=epoch)
    assert bench.shard.coordinator_epochs == [1, 4, 6]
    assert len(bench.shards) == 1


def test_an_epoch_that_rises_during_the_load_is_the_one_that_the_shard_knows() -> None:
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.runtime.load(0, bench.log, 1)
    bench.runtime.load(0, bench.log, 2)
    bench.node.settle()
    assert bench.shard.coordinator_epochs == [2]
    assert bench.shard.replayed_under == [2]


def test_an_epoch_that_rises_during_an_operation_is_told_after_it() -> None:
    bench = Bench().load(leader_epoch=1)

    def operation(shard: TableShard, _: int) -> Result[Put, str]:
        bench.runtime.load(0, bench.log, 2)
        assert shard.coordinator_epochs == [1]
        return shard.put("ok", ("x", 1))

    bench.write("a", operation)
    assert bench.shard.coordinator_epochs == [1, 2]


def test_a_shard_that_is_loaded_again_starts_with_the_newest_epoch() -> None:
    bench = Bench().load(leader_epoch=1)
    bench.load(leader_epoch=3)
    bench.log.shift_next_append = 1
    bench.put("lost", ("a", 2))
    bench.node.settle()
    assert [shard.coordinator_epochs for shard in bench.shards] == [[1, 3], [3]]


def test_a_shard_that_is_not_active_gets_the_image_when_it_has_loaded() -> None:  # [27]
    bench = Bench()
    bench.log.append(batch_of([(b"x", b"1")]), leader_epoch=0)
    bench.log.commit()
    bench.runtime.load(0, bench.log, 1)
    bench.runtime.load(1, bench.logs[1], 1)
    bench.runtime.on_image(ImageDelta())
    assert [len(shard.images) for shard in bench.shards] == [0, 2]
    bench.node.settle()
    assert [len(shard.images) for shard in bench.shards] == [1, 2]


def test_an_empty_log_has_no_snapshot() -> None:  # [38]
    """Kafka keeps one, so that its queries miss changes that are not logged."""
    assert Bench().load().epochs() == ()


def test_a_load_leaves_a_snapshot_at_the_high_watermark() -> None:  # [37]
    bench = Bench()
    for number in range(3):
        bench.log.append(batch_of([(b"x", b"%d" % number), (b"y", b"1")]), leader_epoch=0)
    bench.log.commit(2)
    bench.load()
    assert bench.epochs() == (2,)
    bench.log.commit(4)
    assert bench.read() == {"x": 0, "y": 1}, "an offset without a snapshot cannot be read"
    bench.log.commit(6)
    assert bench.read() == {"x": 2, "y": 1}


def test_several_moves_of_the_high_watermark_during_an_operation_are_one() -> None:  # [39]
    bench = Bench(linger_ms=0).load()
    for number in range(3):
        bench.put(f"w{number}", (f"k{number}", number))
    seen = []

    def moves(offset: int) -> None:
        bench.log.commit(offset)
        seen.append([name for name in bench.answers if bench.answers[name] == ["ok"]])

    def operation(shard, now_ms):  # type: ignore[no-untyped-def]
        moves(1)
        moves(3)
        moves(2)
        bench.put("queued", ("q", 1))
        return shard.put("ok", ("k3", 3))

    bench.log.commit(0)
    bench.write("w3", operation)
    assert seen == [[], [], []], "nothing is drawn from it while the operation runs"
    context = bench.runtime._contexts[0]
    assert context.position.last_committed_offset == 2
    assert [name for name in bench.answers if bench.answers[name] == ["ok"]] == ["w0", "w1"]
    assert bench.runtime.metrics()["event_purgatory_time"].count == 2


def test_closing_answers_everybody_and_a_second_time_nobody() -> None:  # [26]
    bench = Bench().load(0).load(1)
    bench.put("a", ("x", 1))
    bench.runtime.close()
    bench.runtime.close()
    bench.put("late", ("x", 1))
    bench.runtime.load(0, bench.log, 9)
    bench.node.advance(60_000)
    assert bench.answers == {"a": ["NOT_COORDINATOR"], "late": ["NOT_COORDINATOR"]}
    assert bench.runtime.states() == {}
    assert bench.node.wheel.next_ms is None or bench.node.wheel.advance(2**60) == 0


def test_who_leads_no_partition_answers_all_with_nothing() -> None:  # [25]
    bench = Bench()
    assert bench.runtime.read_all(lambda shard, _: shard.partition, repr) == []


# -- offsets -------------------------------------------------------------------------------------------------------


def test_offsets_move_only_where_they_may() -> None:
    position = Position()
    for offset in (10, 20):
        position.open_batch()
        position.update_last_written_offset(offset)
    assert position.registry.epochs == (0, 10)
    for offset in (10, 20):
        with pytest.raises(InvariantError, match=f"new last written offset {offset} is not above 20"):
            position.update_last_written_offset(offset)
    position.update_last_committed_offset(10)
    position.update_last_committed_offset(10)
    for offset in (9, 21):
        with pytest.raises(InvariantError, match=f"new last committed offset {offset} is not within"):
            position.update_last_committed_offset(offset)
    with pytest.raises(InvariantError, match="cannot revert to 30: the last written offset is 20"):
        position.revert_last_written_offset(30)
    with pytest.raises(InvariantError, match="cannot revert to 15: no snapshot"):
        position.revert_last_written_offset(15)
    epochs = list(position.registry.epochs)
    assert epochs == [10]
    position.revert_last_written_offset(10)
    assert (position.last_written_offset, position.last_committed_offset) == (10, 10)
    assert not position.registry.epochs


@pytest.mark.parametrize(
    ("offset", "found"), [(9, 10), (10, 10), (11, 10), (19, 10), (20, 20), (29, 20), (30, 30), (99, 30)]
)
def test_only_what_has_a_snapshot_can_be_read(offset: int, found: int) -> None:
    position = Position(last_committed_offset=10, last_written_offset=10)
    for end in (20, 30):
        position.open_batch()
        position.update_last_written_offset(end)
    assert position.snapshot_at_most(offset) == found
