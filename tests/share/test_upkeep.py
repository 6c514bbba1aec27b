"""Pruned logs, snapshots of cold share partitions, states of deleted topics, and restarts."""

from typing import Any

import pytest

from kohort.broker.features import SHARE_VERSION, Features
from kohort.machine.ports import SharePartitionKey, SharePartitionState, StateBatch
from kohort.model.ids import SHARE_GROUP_STATE, TopicPartition
from kohort.share.upkeep import KEYS_AT_ONCE
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.share.stories import PROFILES, SETTINGS, Player, story

PRUNE_MS, COLD_MS = 1_500, 4_000


def broker(**how: Any) -> Harness:
    """As the node of the stories of pruning: a snapshot after three updates."""
    harness = Harness(**SETTINGS | PROFILES["prune"] | how)
    if "store" not in how:
        harness.create(SHARE_GROUP_STATE)
    harness.host_shares(has_topic=False)
    return harness


def log_of(harness: Harness) -> Any:
    return harness.store.get(TopicPartition(SHARE_GROUP_STATE, 0))


def done(harness: Harness, call: Any, *arguments: Any) -> Any:
    """The answer to a call of the persister."""
    answers: list[Any] = []
    call(*arguments, answers.append)
    harness.node.settle()
    (answer,) = answers
    return answer


def begin(harness: Harness, *keys: SharePartitionKey) -> None:
    for key in keys:
        assert done(harness, harness.broker.persister.initialize, key, 1, 0) is None


def change(harness: Harness, key: SharePartitionKey, offset: int) -> None:
    state = SharePartitionState(1, 0, offset, 0, (StateBatch(offset, offset, 2, 1),))
    assert done(harness, harness.broker.persister.write, key, state) is None


def keys_of(harness: Harness, topic: str, count: int) -> list[SharePartitionKey]:
    topic_id = harness.create(topic, count)
    return [SharePartitionKey("g", topic_id, partition) for partition in range(count)]


class Prunes(Player):
    """A player of the recorded checks of logs that were cut."""

    def _check(self, step: dict[str, Any]) -> None:
        expected = {name: value for name, value in step.items() if value is True}
        shown = {}
        if "cold_snapshots" in expected:
            records = self.records(SHARE_GROUP_STATE)
            values = [record["value"] for record in records if record["record"] == "ShareSnapshot"]
            shown = {
                "cold_snapshots": bool(values),
                "only_snapshots": len(values) == len(records),
                "create_differs_from_write": True,
                "each_key_once": len({str(record["key"]) for record in records}) == len(records),
            }
        else:
            shown = {"log_start_above_0": log_of(self.harness).log_start_offset > 0}
        assert shown == expected


def test_the_recorded_story() -> None:
    name = "state-pruning-and-cold"
    Prunes(broker()).play(story(name))


def test_the_log_is_cut_before_the_oldest_last_snapshot() -> None:
    harness = broker(share_coordinator_cold_partition_snapshot_interval_ms="9999999")
    first, second = keys_of(harness, "t", 2)
    log = log_of(harness)
    begin(harness, first, second)
    for offset in range(8):
        change(harness, first, offset)
    harness.node.advance(PRUNE_MS)
    assert log.log_start_offset == 1, "the snapshot of the second share partition is the second record"
    begin(harness, second)
    harness.node.advance(PRUNE_MS)
    assert log.log_start_offset == 9, "the last snapshot of the first one"
    begin(harness, first)
    harness.node.advance(PRUNE_MS)
    assert log.log_start_offset == 10, "the last snapshot of the second one"
    before = states(harness)
    assert states(broker(store=harness.store, node=harness.node)) == before


def test_writes_and_cuts_are_counted() -> None:
    harness = Harness(**SETTINGS | PROFILES["prune"])
    harness.create(SHARE_GROUP_STATE)
    hosted = harness.host_shares(has_topic=False)
    (key,) = keys_of(harness, "t", 1)
    begin(harness, key)
    for offset in range(4):
        change(harness, key, offset)
    harness.node.advance(PRUNE_MS)
    shown: dict[str, Any] = {
        sample.name: (sample.labels, sample.value)
        for family in hosted.metrics()
        if family is not None
        for sample in family.samples
    }
    kafka = "kafka_server_share_coordinator_metrics"
    assert shown["kohort_share_coordinator_share_partitions"] == ({}, 1)
    assert shown["kohort_share_coordinator_writes_total"] == ({}, 4)
    assert shown[f"{kafka}_write_total"] == ({}, 4)
    assert shown[f"{kafka}_write_latency_max"] == ({}, 0)
    assert shown[f"{kafka}_last_pruned_offset"] == ({"topic": SHARE_GROUP_STATE, "partition": "0"}, 4)


def states(harness: Harness) -> Any:
    """What the persister reads of all share partitions of the topics."""
    persister = harness.broker.persister
    return [
        done(harness, persister.read, SharePartitionKey("g", topic.topic_id, partition), 0)
        for topic in harness.broker.catalog.topics()
        for partition in range(topic.partition_count)
        if not topic.name.startswith("__")
    ]


def test_without_share_partitions_nothing_is_cut() -> None:
    harness = broker()
    (key,) = keys_of(harness, "t", 1)
    begin(harness, key)
    begin(harness, key)
    assert done(harness, harness.broker.persister.delete, key) is None
    harness.node.advance(10 * PRUNE_MS)
    assert log_of(harness).log_start_offset == 0


def test_a_round_of_cold_snapshots_ends_until_there_is_another_snapshot() -> None:
    harness = broker(share_coordinator_state_topic_prune_interval_ms="9999999")
    keys = keys_of(harness, "t", 3)
    player = Player(harness)
    begin(harness, *keys[:2])
    harness.node.advance(COLD_MS - 1)
    begin(harness, keys[2])
    assert len(player.records(SHARE_GROUP_STATE)) == 3
    harness.node.advance(1)
    assert partitions(player) == [0, 1], "the third one is not cold yet"
    harness.node.advance(COLD_MS)
    assert partitions(player) == [0, 1, 2], "the third one has an ordinary snapshot"
    harness.node.advance(10 * COLD_MS)
    assert partitions(player) == []
    change(harness, keys[0], 1)
    harness.node.advance(10 * COLD_MS)
    assert partitions(player) == [0], "an update begins no round"
    begin(harness, keys[0])
    harness.node.advance(2 * COLD_MS)
    assert partitions(player) == [0, 0, 1, 2]


def partitions(player: Player) -> list[int]:
    return [record["key"]["partition"] for record in player.records(SHARE_GROUP_STATE)]


def test_many_cold_share_partitions_get_their_snapshots_in_parts() -> None:
    harness = broker()
    keys = keys_of(harness, "t", 2 * KEYS_AT_ONCE + 1)
    begin(harness, *keys)
    player = Player(harness)
    player.records(SHARE_GROUP_STATE)
    harness.node.advance(COLD_MS)
    assert sorted(partitions(player)) == list(range(len(keys)))
    harness.node.advance(PRUNE_MS)
    assert log_of(harness).log_start_offset == len(keys)


def test_without_share_groups_there_is_no_upkeep() -> None:
    harness = broker(features=Features({SHARE_VERSION: 0}))
    (key,) = keys_of(harness, "t", 1)
    begin(harness, key)
    begin(harness, key)
    end = log_of(harness).end_offset
    harness.node.advance(10 * COLD_MS)
    assert log_of(harness).end_offset == end
    assert log_of(harness).log_start_offset == 0


def test_the_states_of_a_deleted_topic_are_deleted() -> None:
    harness = broker()
    gone, kept = keys_of(harness, "gone", 2), keys_of(harness, "kept", 1)
    begin(harness, *gone, *kept)
    player = Player(harness)
    player.records(SHARE_GROUP_STATE)
    delete(harness, "gone")
    records = player.records(SHARE_GROUP_STATE)
    assert [(record["key"]["partition"], record["value"]) for record in records] == [(0, None), (1, None)]
    assert states(harness) == [SharePartitionState(1, 0, 0, 0)]


def test_many_states_of_a_deleted_topic_are_deleted_in_parts() -> None:
    harness = broker()
    begin(harness, *keys_of(harness, "gone", 2 * KEYS_AT_ONCE + 1))
    delete(harness, "gone")
    assert [record["value"] for record in Player(harness).records(SHARE_GROUP_STATE)[-1:]] == [None]
    assert counts(harness) == [0]


def test_the_states_of_a_topic_that_was_deleted_meanwhile_are_deleted_by_the_load() -> None:
    harness = Harness(**SETTINGS)
    harness.create(SHARE_GROUP_STATE)
    hosted = harness.host_shares(has_topic=False)
    gone, kept = keys_of(harness, "gone", 2), keys_of(harness, "kept", 1)
    begin(harness, *gone, *kept)
    hosted.close()
    delete(harness, "gone")
    again = broker(store=harness.store, node=harness.node)
    again.node.advance(1)
    assert counts(again) == [1]
    assert states(again) == [SharePartitionState(1, 0, 0, 0)]


def delete(harness: Harness, topic: str) -> None:
    wanted = m.DeleteTopicsRequestDeleteTopicState(name=topic, topic_id=None)
    request = m.DeleteTopicsRequest(topics=[wanted], timeout_ms=1_000)
    assert harness.ask(ApiKey.DELETE_TOPICS, request).responses[0].error_code == 0
    harness.node.advance(1)


def counts(harness: Harness) -> list[int]:
    """The number of states of each partition of the coordinator."""
    coordinator: Any = harness.coordinators.persister
    return list(coordinator.counts())


@pytest.mark.parametrize("name", ["state-after-kill"])
def test_a_story_with_a_restart(name: str) -> None:
    steps = story(name)
    harness = broker(**PROFILES[steps[0]["profile"]])
    place = next(index for index, step in enumerate(steps) if step["kind"] == "restart")
    player = Player(harness)
    player.play(steps[:place])
    again = Player(broker(store=harness.store, node=harness.node))
    again.ids = player.ids
    again.play(steps[place:])
