"""What a turn gathers for the database, and how it is divided into statements. No database is asked."""

from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.storage.epochs import EpochCache
from kohort.storage.log import LogConfig
from kohort.storage.postgres.connect import Target
from kohort.storage.postgres.log import PostgresLog
from kohort.storage.postgres.reads import BatchReads
from kohort.storage.postgres.writes import (
    STATEMENT_BYTES,
    Gathering,
    Item,
    LogWrite,
    NewStart,
    pack_state,
    statements,
    unpack_state,
)
from kohort.storage.producer_states import BatchMetadata, ProducerStateEntry
from kohort.storage.producers import ProducerStateManager
from kohort.testing.virtual import VirtualNode
from tests.storage.owner import batch

SMALL, LARGE = batch("a"), batch("x" * (STATEMENT_BYTES // 2))


class Taken:
    """In the place of the writer: takes when it is told to."""

    def __init__(self) -> None:
        self.node = VirtualNode()
        self.given: list[Item] = []
        self.gathering = Gathering(self, self.node.defer)

    def give(self, items: list[Item]) -> None:
        self.given = items

    def take_back(self) -> list[Item]:
        items, self.given = self.given, []
        return items

    def log(self, partition: int) -> PostgresLog:
        return PostgresLog(
            TopicPartition("orders", partition),
            UUID(int=7),
            LogConfig(),
            gathering=self.gathering,
            stored=BatchReads(Target("postgresql://", "kohort")),
            expire=lambda _log, _oldest_ms, _bytes_max: None,
            forget_producers=lambda _log_id, _states: None,
            epochs=EpochCache(),
            producers=ProducerStateManager(),
            aborted=[],
        )

    def writes(self) -> list[LogWrite]:
        return [item for item in self.take_back() if isinstance(item, LogWrite)]


def test_turns_gather_while_the_writer_is_busy() -> None:
    taken = Taken()
    log, other = taken.log(0), taken.log(1)
    for _ in range(3):
        log.append(SMALL, leader_epoch=1)
        taken.node.run_turn()
    other.append(SMALL, leader_epoch=0)
    taken.node.run_turn()
    first, second = taken.writes()
    assert (first.base_offset, first.next_offset, len(first.batches)) == (0, 3, 3)
    assert (first.stored_epoch, first.leader_epoch, first.epochs) == (-1, 1, [(1, 0)])
    assert second.log is other
    log.append(SMALL, leader_epoch=2)
    taken.node.run_turn()
    (third,) = taken.writes()
    assert (third.base_offset, third.next_offset) == (3, 4)
    assert (third.stored_epoch, third.leader_epoch, third.epochs) == (1, 2, [(2, 3)])


def test_a_log_start_comes_behind_the_appends_before_it() -> None:
    taken = Taken()
    log = taken.log(0)
    log.append(SMALL, leader_epoch=0)
    log.advance(1)
    log.delete_before(1)
    log.append(SMALL, leader_epoch=0)
    taken.node.run_turn()
    log.append(SMALL, leader_epoch=0)
    taken.node.run_turn()
    before, start, after = taken.take_back()
    assert isinstance(before, LogWrite)
    assert isinstance(start, NewStart)
    assert isinstance(after, LogWrite)
    assert [(each.base_offset, each.next_offset) for each in (before, after)] == [(0, 1), (1, 3)]


def test_a_statement_has_each_log_once_small_ones_first_and_bounded_bytes() -> None:
    taken = Taken()
    large, small = [taken.log(partition) for partition in range(3)], taken.log(9)
    for log in (*large, large[0]):
        log.append(LARGE, leader_epoch=0)
        log.append(LARGE, leader_epoch=0)
    small.append(SMALL, leader_epoch=0)
    taken.node.run_turn()
    given = taken.writes()
    assert [write.size_bytes // len(LARGE) for write in given if write.log is large[0]] == [2, 2]
    divided = list(statements(given))
    assert divided[0][0].log is small
    assert sorted(map(id, given)) == sorted(id(write) for each in divided for write in each)
    for each in divided:
        assert len({write.log for write in each}) == len(each)
        assert sum(write.size_bytes for write in each) <= 2 * len(LARGE) + len(SMALL)
    bases = [write.base_offset for each in divided for write in each if write.log is large[0]]
    assert bases == sorted(bases)


def test_the_state_of_a_producer_is_kept_whole() -> None:
    state = ProducerStateEntry(9, 3, coordinator_epoch=4, timestamp_ms=5, transaction_offset=6)
    state.batches.extend(BatchMetadata(number, number + 1, 0, 7) for number in range(9))
    assert unpack_state(9, pack_state(state)) == state
    empty = ProducerStateEntry(1)
    assert unpack_state(1, pack_state(empty)) == empty
