"""The table of names and numbers, as something to simulate."""

from collections.abc import Callable
from random import Random

from kohort.machine.bulk import LongRecords
from kohort.machine.shard import EndTransaction, Producer, Result
from kohort.machine.steps import Deadline, Operation
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.testing import Subject, Work
from tests.runtime.shards import Put, PutSerde, TableShard

NAMES = ("a", "b", "c")
PRODUCER_IDS = (7, 8)

Handler = Callable[[TableShard, int], Result[Put, str]]
Maker = Callable[[], Work]


def picture(shard: TableShard, offset: int) -> object:
    return dict(shard.table.items_at(offset)), dict(shard.pending.items_at(offset))


def asks(operation: Handler) -> Work:
    return Work(operation)


def put(name: str, *, is_atomic: bool = True) -> Work:
    """Count `name` up by what is there, so that an operation depends on what it has seen."""

    def operation(shard: TableShard, _: int) -> Result[Put, str]:
        number = shard.table.get(name, 0) + 1
        return shard.put("ok", (name, number), (name + name, number), is_atomic=is_atomic)

    return asks(operation)


def put_in_slices(name: str) -> Work:
    """Records that the runtime replays in slices."""

    def operation(shard: TableShard, now_ms: int) -> Result[Put, str]:
        return Result(LongRecords([shard.table.get(name, 0), now_ms], lambda number: Put(name, number)), "ok")

    return asks(operation)


def remove(name: str) -> Work:
    return asks(lambda shard, _: shard.put("ok", (name, None)))


def look() -> Work:
    return asks(lambda shard, _: Result((), f"{sorted(shard.table.items())}"))


def refuse() -> Work:
    def operation(_: TableShard, __: int) -> Result[Put, str]:
        raise CoordinatorError(ErrorCode.ILLEGAL_GENERATION)

    return asks(operation)


def poison() -> Work:
    return asks(lambda shard, _: shard.put("ok", ("half", 1), ("poison", 1)))


def park() -> Work:
    return asks(lambda shard, _: shard.park())


def release(name: str) -> Work:
    return asks(lambda shard, now_ms: shard.release("released", (name, now_ms)))


SUBJECT = Subject(make_shard=TableShard, serde=PutSerde(), picture=picture, wake=lambda: release("a"))


def _expire(_shard: TableShard, now_ms: int, name: str) -> Result[Put, None]:
    return Result([Put(name, now_ms)])


def arm(name: str, delay_ms: int) -> Work:
    def operation(_shard: TableShard, _: int) -> Result[Put, str]:
        return Result((), "armed", deadlines=[Deadline((name,), delay_ms, Operation(_expire, name))])

    return asks(operation)


def put_in_transaction(name: str, producer_id: int) -> Work:
    return Work(lambda shard, now_ms: shard.put("ok", (name, now_ms)), producer=Producer("t", producer_id, 0))


def end(producer_id: int, *, committed: bool) -> Work:
    return Work(end=EndTransaction(producer_id, 0, coordinator_epoch=1, committed=committed))


def workload(chance: Random) -> Work:
    """A request, by chance."""
    name, producer_id = chance.choice(NAMES), chance.choice(PRODUCER_IDS)
    match chance.randrange(15):
        case 0:
            return remove(name)
        case 1:
            return look()
        case 2:
            return refuse()
        case 3:
            return poison()
        case 4:
            return park()
        case 5:
            return release(name)
        case 6:
            return arm(name, chance.choice((0, 1, 10, 5_000)))
        case 7 | 8:
            return put_in_transaction(name, producer_id)
        case 9:
            return end(producer_id, committed=chance.random() < 0.5)
        case 10:
            return put(name, is_atomic=False)
        case 11:
            return put_in_slices(name)
        case _:
            return put(name)
