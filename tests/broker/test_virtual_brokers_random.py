"""
Random stops, starts and moves of leaders, with a writer and a group.

Nothing that was acknowledged is lost or repeated, each partition has one leader, epochs never fall, and a loaded catalog
equals the one that wrote.
"""

from random import Random
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records
from tests.broker.harness import produce_request
from tests.broker.virtual_cluster import BROKERS, VirtualCluster

PARTITIONS = 3
GROUP = "g"
PRODUCER_ID = 7
STEPS = 60


class World:
    """A cluster under test, and what its clients were told."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.cluster = VirtualCluster(racks=("a", "b", None))
        self.cluster.assign("t", *(rng.sample(BROKERS, 3) for _ in range(PARTITIONS)))
        self.acknowledged: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.committed = -1
        self.epochs: dict[tuple[str, int], int] = {}

    def stop(self) -> None:
        if len(self.cluster.running) > 1:
            self.cluster.stop(self.rng.choice(self.cluster.running))

    def start(self) -> None:
        stopped = [broker for broker in BROKERS if broker not in self.cluster.running]
        if stopped:
            self.cluster.start(self.rng.choice(stopped))

    def move(self) -> None:
        """Another order of replicas, and a preferred election."""
        index = self.rng.randrange(PARTITIONS)
        replicas = self.rng.sample(BROKERS, self.rng.choice((2, 3)))
        partition = m.AlterPartitionReassignmentsRequestReassignablePartition(partition_index=index, replicas=replicas)
        topic = m.AlterPartitionReassignmentsRequestReassignableTopic(name="t", partitions=[partition])
        self._ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, m.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000)
        )
        request = m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)
        self._ask(ApiKey.ELECT_LEADERS, request)

    def restart(self) -> None:
        """The whole process starts again, on the same store."""
        before = self._states()
        self.cluster = VirtualCluster(store=self.cluster.store, node=self.cluster.node, racks=("a", "b", None))
        for place, state in self._states().items():
            assert state.leader_epoch >= before[place].leader_epoch + 2, "an election at the start may add one"
            assert set(state.replicas) <= set(before[place].replicas)
            assert set(state.isr) == set(state.replicas)

    def _states(self) -> dict[tuple[str, int], Any]:
        catalog = self.cluster.broker.catalog
        return {
            (topic.name, index): state
            for topic in catalog.topics()
            for index, state in enumerate(catalog.states(topic))
        }

    def write(self) -> None:
        """Produce at every broker until one takes the batch, as a client does that looks for the leader."""
        index = self.rng.randrange(PARTITIONS)
        sequence = len(self.acknowledged[index])
        value = b"%d" % sequence
        batch = build_batch(
            [BatchRecord(None, value)],
            timestamp_ms=self.cluster.node.clock.now_ms(),
            producer_id=PRODUCER_ID,
            producer_epoch=0,
            base_sequence=sequence,
        )
        leader = self.cluster.state("t", index).leader_id
        takers = []
        for broker in self.rng.sample(BROKERS, 3):
            response = self.cluster.ask(ApiKey.PRODUCE, produce_request("t", {index: batch}), version=12, at=broker)
            (answer,) = response.responses[0].partition_responses
            if answer.error_code == 0:
                takers.append(broker)
            else:
                assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert takers == ([] if leader < 0 else [leader])
        if takers:
            self.acknowledged[index].append(value)

    def commit(self) -> None:
        self.committed += 1
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=self.committed)
        request = m.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=-1,
            topics=[m.OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        here = self._coordinator()
        for broker in BROKERS:
            response = self.cluster.ask(ApiKey.OFFSET_COMMIT, request, version=9, at=broker)
            code = response.topics[0].partitions[0].error_code
            assert code == (ErrorCode.NONE if broker == here else ErrorCode.NOT_COORDINATOR)

    def _coordinator(self) -> int:
        found = self.cluster.coordinator(GROUP)
        return self.cluster.coordinator(GROUP) if found < 0 else found

    def _ask(self, api_key: ApiKey, request: Any) -> Any:
        return self.cluster.ask(api_key, request, at=self.rng.choice(self.cluster.running))

    def check(self) -> None:
        running = self.cluster.running
        seen = [
            self.cluster.ask(ApiKey.METADATA, m.MetadataRequest(topics=None), at=broker).topics for broker in running
        ]
        assert all(topics == seen[0] for topics in seen), "every broker tells the same"
        for topic in seen[0]:
            for partition in topic.partitions:
                place = topic.name, partition.partition_index
                assert partition.leader_id in (*running, -1)
                assert partition.leader_epoch >= self.epochs.get(place, 0)
                self.epochs[place] = partition.leader_epoch

    def check_records(self) -> None:
        """Read every partition from a replica, and the offset of the group."""
        for index, values in enumerate(self.acknowledged):
            replica = self.rng.choice(self.cluster.state("t", index).isr_nodes)
            asked = m.FetchRequestFetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            topics = [m.FetchRequestFetchTopic(topic="t", partitions=[asked])]
            response = self.cluster.ask(
                ApiKey.FETCH, m.FetchRequest(topics=topics, max_bytes=1 << 20), version=11, at=replica
            )
            (data,) = response.responses[0].partitions
            records = bytes(data.records or b"")
            found = [
                bytes(record.value or b"")
                for position, header in iter_batches(records)
                for record in read_records(memoryview(records)[position:], header=header)
            ]
            assert found == values
        if self.committed >= 0:
            group = m.OffsetFetchRequestGroup(group_id=GROUP, topics=None)
            request = m.OffsetFetchRequest(groups=[group])
            (answer,) = self.cluster.ask(ApiKey.OFFSET_FETCH, request, version=9, at=self._coordinator()).groups
            assert answer.topics[0].partitions[0].committed_offset == self.committed


@pytest.mark.parametrize("number", range(8))
def test_random_stops_and_moves(number: int, rng: Random) -> None:
    world = World(rng)
    moves = [world.stop, world.start, world.move, world.restart, *[world.write] * 4, *[world.commit] * 2]
    for _ in range(STEPS):
        rng.choice(moves)()
        world.check()
    while len(world.cluster.running) < len(BROKERS):
        world.start()
    world.check()
    world.check_records()
