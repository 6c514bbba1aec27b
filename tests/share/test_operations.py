"""What the recorded stories do not tell of single operations, and what records make of a state."""

from typing import Any

import pytest

from kohort.machine.ports import SharePartitionKey, SharePartitionState, StateBatch
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.model.limits import SHARE_STATE_BATCHES_MAX, SHARE_WRITE_BATCHES_MAX
from kohort.records.values import ShareSnapshot, ShareUpdate, ShareUpdateTombstone
from kohort.share.config import ShareConfig
from kohort.share.records import key_of
from kohort.share.shard import ShareShard
from kohort.share.upkeep import prune
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.share.stories import SETTINGS

NEW = SharePartitionState(1, 0, 0, 0)
"""After `initialize` with state epoch 1 and start offset 0."""


class Node:
    """A share coordinator, and a share partition whose state is initialised."""

    def __init__(self, **settings: Any) -> None:
        self.harness = Harness(**SETTINGS | settings)
        self.harness.host_shares()
        self.key = SharePartitionKey("g", self.harness.create("t"), 0)
        assert self.ask("initialize", 1, 0) is None

    def ask(self, method: str, *arguments: Any) -> Any:
        """The answer of the persister; of an error its code."""
        answers: list[Any] = []
        getattr(self.harness.broker.persister, method)(self.key, *arguments, answers.append)
        self.harness.node.settle()
        (answer,) = answers
        return answer.code if isinstance(answer, CoordinatorError) else answer

    def write(self, *batches: StateBatch, state_epoch: int = 1, leader_epoch: int = 0, start_offset: int = 0) -> Any:
        return self.ask("write", SharePartitionState(state_epoch, leader_epoch, start_offset, 0, batches))

    def restarted(self) -> "Node":
        again = Node.__new__(Node)
        again.key = self.key
        again.harness = Harness(store=self.harness.store, node=self.harness.node, **SETTINGS)
        again.harness.host_shares(has_topic=False)
        return again


def test_leaders_that_were_fenced_stay_fenced_after_an_initialisation() -> None:
    node = Node()
    assert node.ask("read", 4) == NEW._replace(leader_epoch=4)
    assert node.ask("initialize", 1, 0) is None
    assert node.ask("summary") == NEW, "the leader epoch is 0 again"
    assert node.write(leader_epoch=3) is ErrorCode.FENCED_LEADER_EPOCH
    assert node.ask("read", 3) is ErrorCode.FENCED_LEADER_EPOCH
    assert node.write(leader_epoch=4) is None
    assert node.ask("delete") is None
    assert node.ask("initialize", 0, 0) is None, "a deletion forgets all epochs"
    assert node.ask("read", 1) == SharePartitionState(0, 1, 0, 0)


def test_every_update_counts_after_a_restart() -> None:
    node = Node()
    for offset in (1, 3, 5):
        assert node.write(StateBatch(offset, offset, 2, offset)) is None
    read = node.ask("read", 0)
    assert read.batches == (StateBatch(1, 1, 2, 1), StateBatch(3, 3, 2, 3), StateBatch(5, 5, 2, 5))
    assert node.restarted().ask("read", 0) == read


def test_an_initialisation_does_not_count_as_the_snapshot_that_is_due() -> None:
    node = Node(share_coordinator_snapshot_update_records_per_snapshot="3")
    for _ in range(3):
        assert node.write() is None
    assert node.ask("initialize", 1, 0) is None, "three updates: this one resets the counter"
    epochs = []
    for _ in range(2):
        assert node.write() is None
    assert node.ask("initialize", 1, 0) is None, "two updates: this one does not"
    for _ in range(3):
        assert node.write() is None
        (state,) = states(node)
        epochs.append(state.snapshot_epoch)
    assert epochs == [2, 3, 3]


def states(node: Node) -> list[Any]:
    answers = node.harness.coordinators.persister
    assert answers is not None
    found: list[Any] = answers.runner.read_all(lambda shard, _: list(shard.states.values()), lambda _: [])[0]  # type: ignore[attr-defined]
    return found


def test_a_summary_is_of_what_is_durable() -> None:
    node = Node()
    node.harness.hold()
    answers: list[Any] = []
    changed = SharePartitionState(1, 0, 7, 0)
    node.harness.broker.persister.write(node.key, changed, answers.append)
    node.harness.node.settle()
    assert node.ask("summary") == NEW
    assert answers == []
    node.harness.let_go()
    assert answers == [None]
    assert node.ask("summary") == NEW._replace(start_offset=7)


def test_a_request_with_a_topic_without_partitions_is_not_served() -> None:
    node = Node()
    for name, topic, is_served in (
        ("ReadShareGroupState", "ReadStateData", False),
        ("InitializeShareGroupState", "InitializeStateData", True),
    ):
        of = getattr(m, f"{name}Request{topic}")
        partition = getattr(m, f"{name}RequestPartitionData")(partition=0)
        topics = [of(topic_id=node.key.topic_id, partitions=[partition]), of(topic_id=node.key.topic_id, partitions=[])]
        api = next(api for api in ApiKey if api.api_name == name)
        answer = node.harness.ask(api, getattr(m, f"{name}Request")(group_id="g", topics=topics))
        assert len(answer.results) == is_served


def test_a_share_partition_has_a_bound_of_batches() -> None:
    node = Node()
    most = [StateBatch(2 * index, 2 * index, 2, 1) for index in range(SHARE_STATE_BATCHES_MAX)]
    assert node.write(*most[: SHARE_WRITE_BATCHES_MAX + 1]) is ErrorCode.INVALID_REQUEST
    for low in range(0, SHARE_STATE_BATCHES_MAX, SHARE_WRITE_BATCHES_MAX):
        assert node.write(*most[low : low + SHARE_WRITE_BATCHES_MAX]) is None
    assert node.write(StateBatch(1, 1, 2, 1)) is None, "two batches become one"
    last = 2 * SHARE_STATE_BATCHES_MAX
    assert node.write(StateBatch(last, last, 2, 1)) is None
    assert node.write(StateBatch(last + 2, last + 2, 2, 1)) is ErrorCode.INVALID_REQUEST
    assert node.write(StateBatch(last + 2, last + 2, 2, 1), start_offset=5) is None, "the start offset drops some"


# Replay

KEY: dict[str, Any] = {"group_id": "g", "topic_id": None, "partition": 0}


def shard_of(*records: Any) -> ShareShard:
    shard = ShareShard(SnapshotRegistry(), ShareConfig())
    for offset, record in enumerate(records):
        shard.replay(offset, -1, -1, record)
    return shard


def snapshot(*batches: StateBatch, start_offset: int = 4) -> ShareSnapshot:
    return ShareSnapshot("g", None, 0, 3, 5, 6, start_offset, 1, 2, batches, 7)  # type: ignore[arg-type]


def test_an_update_of_minus_one_keeps_start_offset_and_leader_epoch() -> None:
    record = ShareUpdate("g", None, 0, 3, -1, -1, (StateBatch(4, 4, 2, 1),), 8)  # type: ignore[arg-type]
    (state,) = shard_of(snapshot(), record).states.values()
    assert (state.start_offset, state.leader_epoch, state.state_epoch, state.snapshot_epoch) == (4, 6, 5, 3)
    assert (state.complete_count, state.batches, state.updates) == (8, (StateBatch(4, 4, 2, 1),), 1)


def test_an_update_without_a_snapshot_is_the_state() -> None:
    record = ShareUpdate("g", None, 0, 3, 2, 9, (), 1)
    (state,) = shard_of(record).states.values()
    assert (state.state_epoch, state.leader_epoch, state.start_offset, state.snapshot_epoch) == (0, 2, 9, 3)
    assert state.newest_leader_epoch == 2


@pytest.mark.parametrize("batches", [(StateBatch(8, 6, 2, 1),), (StateBatch(8, 9, 2, 1), StateBatch(5, 8, 2, 1))])
def test_a_snapshot_with_batches_out_of_order_is_put_in_order(batches: tuple[StateBatch, ...]) -> None:
    (state,) = shard_of(snapshot(*batches)).states.values()
    assert state.batches == ((StateBatch(5, 9, 2, 1),) if len(batches) > 1 else ())


def test_a_tombstone_of_an_update_deletes_the_state_as_well() -> None:
    assert key_of(snapshot()) in shard_of(snapshot()).states
    assert not shard_of(snapshot(), ShareUpdateTombstone("g", None, 0)).states


def test_the_log_is_not_cut_twice_at_the_same_place() -> None:
    shard = shard_of(ShareUpdateTombstone("h", None, 0), snapshot())
    assert [effect.offset for effect in prune(shard, 0).effects] == [1]
    assert prune(shard, 0).effects == []


# Several brokers


def test_another_broker_than_the_coordinator_refuses() -> None:
    harness = Harness(**SETTINGS, racks=(None, None))
    harness.host_shares()
    topic_id = harness.create("t")
    key = f"g:{uuid_text(topic_id)}:0"
    find = m.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    (found,) = harness.ask(ApiKey.FIND_COORDINATOR, find).coordinators
    assert found.error_code == ErrorCode.NONE
    of = m.ReadShareGroupStateSummaryRequestPartitionData(partition=0)
    topics = [m.ReadShareGroupStateSummaryRequestReadStateSummaryData(topic_id=topic_id, partitions=[of])]
    request = m.ReadShareGroupStateSummaryRequest(group_id="g", topics=topics)
    for node_id in (1, 2):
        answer = harness.ask(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, request, at=node_id).results[0].partitions[0]
        if node_id == found.node_id:
            assert (answer.error_code, answer.start_offset) == (ErrorCode.NONE, -1)
        else:
            assert answer.error_code == ErrorCode.NOT_COORDINATOR
            what = "Unable to read share group state summary: "
            assert answer.error_message == f"{what}This is not the correct coordinator."
    assert harness.broker.coordinators.persister is not None, "within the process every coordinator is reached"
