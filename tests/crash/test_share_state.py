"""
What a share group has acknowledged stays acknowledged, though the broker be killed at any moment, and delivery counts that were
written stay, too. Locks and first deliveries are forgotten, as in Apache Kafka.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.client import Client, Versions
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.crash.writers import await_coordinators

GROUP, TOPIC = "workers", "jobs"
ACCEPT, RELEASE, REJECT = 1, 2, 3
ROUNDS = 3
SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "50",
    "group.share.heartbeat.interval.ms": "50",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}

BY_NAME = Versions(12, 12)
"""Versions of Produce with names of topics."""

Acquired = dict[int, int]
"""The deliveries of records by offset."""


class Member:
    """A member with a connection of its own, which a killed broker ends."""

    def __init__(self, broker: ServedKohort, number: int) -> None:
        self._client = Client(broker.bootstrap, PATIENCE_S)
        self._member_id = f"member-{number}"
        self._epoch = 0
        (topic,) = self._client.send(
            ApiKey.METADATA, m.MetadataRequest(topics=[m.MetadataRequestTopic(name=TOPIC)])
        ).topics
        self._topic_id = topic.topic_id

    def join(self) -> None:
        """Send heartbeats until the partition is assigned."""
        epoch = 0

        def is_assigned() -> bool:
            nonlocal epoch
            request = m.ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id=self._member_id, member_epoch=epoch, subscribed_topic_names=[TOPIC]
            )
            answer = self._client.send_to_coordinator(
                GROUP, ApiKey.SHARE_GROUP_HEARTBEAT, request, error_code=lambda response: response.error_code
            )
            assert answer.error_code == 0, answer
            epoch = answer.member_epoch
            return bool(answer.assignment and answer.assignment.topic_partitions)

        wait_until(is_assigned, what=lambda: f"an assignment at epoch {epoch}")

    def fetch(self) -> Acquired:
        """Acquire what is available."""
        partition = m.ShareFetchRequestFetchPartition(partition_index=0)
        topic = m.ShareFetchRequestFetchTopic(topic_id=self._topic_id, partitions=[partition])
        acquired: Acquired = {}

        def has_acquired() -> bool:
            request = m.ShareFetchRequest(
                group_id=GROUP,
                member_id=self._member_id,
                share_session_epoch=self._epoch,
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                max_records=500,
                batch_size=500,
                topics=[] if self._epoch else [topic],
            )
            self._epoch += 1
            answer = self._client.send(ApiKey.SHARE_FETCH, request)
            assert answer.error_code == 0, answer
            for response in answer.responses:
                for each in response.partitions:
                    for run in each.acquired_records:
                        acquired.update(dict.fromkeys(range(run.first_offset, run.last_offset + 1), run.delivery_count))
            return bool(acquired)

        wait_until(has_acquired, what=lambda: "acquired records")
        return acquired

    def acknowledge(self, first: int, types: Sequence[int]) -> None:
        batches = m.ShareAcknowledgeRequestAcknowledgementBatch(
            first_offset=first, last_offset=first + len(types) - 1, acknowledge_types=types
        )
        partition = m.ShareAcknowledgeRequestAcknowledgePartition(partition_index=0, acknowledgement_batches=[batches])
        topic = m.ShareAcknowledgeRequestAcknowledgeTopic(topic_id=self._topic_id, partitions=[partition])
        request = m.ShareAcknowledgeRequest(
            group_id=GROUP, member_id=self._member_id, share_session_epoch=self._epoch, topics=[topic]
        )
        self._epoch += 1
        answer = self._client.send(ApiKey.SHARE_ACKNOWLEDGE, request)
        codes = [each.error_code for response in answer.responses for each in response.partitions]
        assert (answer.error_code, codes) == (0, [0]), answer


def make_queue(broker: ServedKohort, count: int) -> None:
    """A topic with records, and the configuration that lets the group begin with the first one."""
    entry = m.IncrementalAlterConfigsRequestAlterableConfig(
        name="share.auto.offset.reset", config_operation=0, value="earliest"
    )
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=32, resource_name=GROUP, configs=[entry]
    )
    topic = m.CreateTopicsRequestCreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    requests: list[tuple[ApiKey, Any]] = [
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, m.IncrementalAlterConfigsRequest(resources=[resource])),
        (ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)),
    ]
    with Client(broker.bootstrap, PATIENCE_S) as client:
        for api_key, request in requests:
            client.send(api_key, request)
        request = produce_request(TOPIC, {0: batch(*[b"job"] * count)})
        produced = client.send(ApiKey.PRODUCE, request, within=BY_NAME)
        assert produced.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_acknowledged_records_stay_so_after_sigkill(tmp_path: Path, flush: str, rng: Random) -> None:
    count = 12
    expected: Acquired = dict.fromkeys(range(count), 1)
    """Deliveries of the records that are not done, at the next fetch."""
    with ServedKohort(tmp_path, SETTINGS, flush=flush) as broker:
        await_coordinators(broker)
        make_queue(broker, count)
        for number in range(ROUNDS):
            member = Member(broker, number)
            member.join()
            assert member.fetch() == expected
            left = sorted(expected)
            for offset in rng.sample(left, 3):
                kind = rng.choice([ACCEPT, RELEASE, REJECT])
                member.acknowledge(offset, [kind])
                if kind == RELEASE:
                    expected[offset] += 1
                else:
                    del expected[offset]
            broker.kill()
            broker.start()
            await_coordinators(broker)
