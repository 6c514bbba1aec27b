"""What the group coordinator counts. Source: where Kafka's OffsetMetadataManager and GroupMetadataManager record a sensor."""

from kohort.group.classic.states import EMPTY, PREPARING_REBALANCE, STABLE
from kohort.group.configs import GroupConfig
from kohort.group.events import EpochRaised
from kohort.group.groups import CLASSIC
from kohort.group.metrics import EventCounts, GroupCounters
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.generated.gradual import drain
from tests.group.harness import Coordinator

MINUTE_MS = 60_000


def counted(coordinator: Coordinator) -> tuple[int, int, int, int]:
    """Commits, expirations, deletions, completed rebalances."""
    counters, counts = coordinator.shard.context.counters, EventCounts()
    for event in coordinator.events:
        counts.count(event)
    return (
        counters.offset_commits,
        counters.offset_expirations,
        counters.offset_deletions,
        counts.completed_rebalances,
    )


def test_every_partition_of_a_commit_counts_unless_it_was_refused() -> None:
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=3))
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2})
    coordinator.commit(metadata="long")
    coordinator.commit(generation=7)
    assert counted(coordinator) == (2, 0, 0, 0)


def test_offsets_in_transactions_count_as_commits_when_they_are_written() -> None:
    """Source: OffsetMetadataManager.commitTransactionalOffset. The end of the transaction counts nothing."""
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=3))
    coordinator.commit_in_transaction({("orders", 0): 1, ("orders", 1): 2})
    coordinator.commit_in_transaction(metadata="long")
    coordinator.commit_in_transaction(generation=7)
    assert counted(coordinator) == (2, 0, 0, 0)
    assert drain(coordinator.service.gauges_in_steps()).offsets == 0, "pending offsets are no committed offsets"
    coordinator.end_transaction(committed=True)
    assert counted(coordinator) == (2, 0, 0, 0)
    assert drain(coordinator.service.gauges_in_steps()).offsets == 2


def test_deletions_are_those_of_offset_delete() -> None:
    coordinator = Coordinator()
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2, ("payments", 0): 3})
    partitions = [m.OffsetDeleteRequestPartition(partition_index=index) for index in (0, 1)]
    topic = m.OffsetDeleteRequestTopic(name="orders", partitions=partitions)
    assert coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id="group", topics=[topic])).code == 0
    assert coordinator.delete("group") == {"group": ErrorCode.NONE}
    assert counted(coordinator) == (3, 0, 2, 0)


def test_what_lapses_is_counted() -> None:
    coordinator = Coordinator(GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS))
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2})
    coordinator.advance(2 * MINUTE_MS)
    assert counted(coordinator) == (2, 2, 0, 0)


def test_a_rebalance_is_complete_when_the_group_is_stable() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    assert counted(coordinator)[3] == 1
    generation = coordinator.join(member).generation_id
    assert counted(coordinator)[3] == 1
    coordinator.sync(member, generation)
    assert counted(coordinator)[3] == 2


def test_gauges() -> None:
    coordinator = Coordinator()
    coordinator.stable(2, group="stable")
    coordinator.commit({("orders", 0): 1, ("orders", 1): 2}, group="simple")
    coordinator.join(group="joining", version=3)
    for _ in range(2):
        gauges = drain(coordinator.service.gauges_in_steps())
        assert gauges.groups == {(CLASSIC, state.value): 1 for state in (STABLE, EMPTY, PREPARING_REBALANCE)}
        assert (gauges.members[CLASSIC], gauges.offsets) == (3, 2)


def test_a_total_is_over_all_partitions() -> None:
    one, other = GroupCounters(), GroupCounters()
    one.offset_commits, other.offset_commits, other.offset_deletions = 2, 3, 1
    total = GroupCounters.total([one, other])
    assert (total.offset_commits, total.offset_expirations, total.offset_deletions) == (5, 0, 1)


def test_a_total_has_every_counter() -> None:
    one = GroupCounters()
    names = [name for name in dir(one) if isinstance(getattr(one, name), int)]
    for number, name in enumerate(names, 1):
        setattr(one, name, number)
    total = GroupCounters.total([one, one])
    assert {name: getattr(total, name) for name in names} == {name: 2 * number for number, name in enumerate(names, 1)}
    assert len(names) >= 3


def test_a_new_epoch_counts_unless_a_member_left() -> None:
    counts = EventCounts()
    for member_id in ("m", "n", None):
        counts.count(EpochRaised("g", 2, member_id))
    assert counts.consumer_rebalances == 2
