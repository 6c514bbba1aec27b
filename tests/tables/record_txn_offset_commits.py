"""
Asks Apache Kafka 4.4.0 what it answers to the cases of `txn_offset_commit_cases`, and keeps it for the tests:

    python -m tests.tables.record_txn_offset_commits
"""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from kohort.testing.kafka import KafkaNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.waiting import wait_until
from tests.crash.connection import Connection
from tests.tables.txn_offset_commit_cases import (
    INSTANCE,
    MEMBER_VERSIONS,
    METADATA_MAX,
    PRODUCERS,
    SENDERS,
    SHAPES,
    STATES,
    TOPIC,
    TOPIC_IDS,
    VERSIONS,
    Sender,
    request,
    summary,
)

RELEASE = "4.4.0"
RECORDED = Path(__file__).parents[1] / "data" / f"txn-offset-commits-{RELEASE}.json"
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "offset.metadata.max.bytes": str(METADATA_MAX),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory), PROPERTIES, release=RELEASE) as node:
        recorder = Recorder(node.port)
        rows = {
            "senders": {
                state: {name: recorder.codes(f"{state}, {name}", state, sender) for name, sender in SENDERS.items()}
                for state in STATES
            },
            "shapes": {name: recorder.shape(name) for name in SHAPES},
            "producers": {name: recorder.producer(name) for name in PRODUCERS},
        }
    RECORDED.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")


class Recorder:
    """Connections to one broker, and a producer with an open transaction."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._asker = Connection(port)
        self._parked: list[Connection] = []
        wanted = m.CreateTopicsRequestCreatableTopic(name=TOPIC, num_partitions=4, replication_factor=1)
        created = self._asker.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
        assert created.topics[0].error_code == 0, created
        self._topic_ids: dict[str, UUID | None] = {**TOPIC_IDS, TOPIC: created.topics[0].topic_id}
        for key_type, key in ((0, "group"), (1, "known")):
            wait_until(partial(self._coordinator, key_type, key), what=f"a coordinator of {key}")
        self._producer = self._new_producer("known")
        wait_until(self._opened, what="a transaction")

    def _coordinator(self, key_type: int, key: str) -> bool | None:
        found = self._asker.ask(
            ApiKey.FIND_COORDINATOR, 4, m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        )
        return None if found.coordinators[0].error_code else True

    def _opened(self) -> bool | None:
        answer = self._asker.ask(ApiKey.TXN_OFFSET_COMMIT, 5, request(group="opened", producer=self._producer))
        return None if answer.topics[0].partitions[0].error_code else True

    def _new_producer(self, transactional_id: str) -> tuple[int, int]:
        wanted = m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=600_000, producer_id=-1, producer_epoch=-1
        )

        def attempt() -> tuple[int, int] | None:
            answer = self._asker.ask(ApiKey.INIT_PRODUCER_ID, 4, wanted)
            return None if answer.error_code else (answer.producer_id, answer.producer_epoch)

        found = wait_until(attempt, what="a producer id")
        assert found is not None
        return found

    # Groups in a state

    def codes(self, group: str, state: str, sender: Sender) -> list[int]:
        """The code of one partition in each of `MEMBER_VERSIONS`."""
        generation, member_id, pending_id = self._group(group, state, is_static=sender.instance is not None)
        names = {"member": member_id, "pending": pending_id}
        wanted = request(
            group=group,
            producer=self._producer,
            generation=-1 if sender.generation is None else generation + sender.generation,
            member_id=names.get(sender.member, sender.member),
            instance=sender.instance,
            topic_ids=self._topic_ids,
        )
        codes = [
            int(self._asker.ask(ApiKey.TXN_OFFSET_COMMIT, version, wanted).topics[0].partitions[0].error_code)
            for version in MEMBER_VERSIONS
        ]
        for connection in self._parked:
            connection.__exit__(None, None, None)
        self._parked.clear()
        return codes

    def _group(self, group: str, state: str, *, is_static: bool) -> tuple[int, str, str]:
        """Generation, the id of its member, and an id that has not joined."""
        if state == "absent":
            return 0, "a member", "a pending member"
        if state == "simple":
            entry = m.OffsetCommitRequestPartition(partition_index=1, committed_offset=1)
            plain = m.OffsetCommitRequest(
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                topics=[m.OffsetCommitRequestTopic(name=TOPIC, partitions=[entry])],
            )
            assert self._asker.ask(ApiKey.OFFSET_COMMIT, 9, plain).topics[0].partitions[0].error_code == 0
            return 0, "a member", "a pending member"
        if state == "consumer":
            return self._consumer_group(group, is_static=is_static)
        instance = INSTANCE if is_static else None
        member_id = "" if is_static else self._join(group).member_id
        joined = self._join(group, member_id, instance)
        assert joined.error_code == 0, joined
        generation, member_id = joined.generation_id, joined.member_id
        pending_id = self._join(group).member_id
        if state == "CompletingRebalance":
            return generation, member_id, pending_id
        sync = m.SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[m.SyncGroupRequestAssignment(member_id=member_id, assignment=b"all")],
        )
        assert self._asker.ask(ApiKey.SYNC_GROUP, 5, sync).error_code == 0
        if state == "PreparingRebalance":
            # A second member waits for the first one to join again.
            connection = Connection(self._port)
            connection.send(ApiKey.JOIN_GROUP, 9, self._join_request(group, self._join(group).member_id, None))
            self._parked.append(connection)

            def is_preparing() -> bool | None:
                described = self._asker.ask(ApiKey.DESCRIBE_GROUPS, 6, m.DescribeGroupsRequest(groups=[group]))
                return True if described.groups[0].group_state == state else None

            wait_until(is_preparing, what=f"{group} in {state}")
        if state == "Empty":
            identities = [
                m.LeaveGroupRequestMemberIdentity(member_id=member_id, group_instance_id=instance),
                m.LeaveGroupRequestMemberIdentity(member_id=pending_id),
            ]
            left = m.LeaveGroupRequest(group_id=group, members=identities)
            assert self._asker.ask(ApiKey.LEAVE_GROUP, 5, left).error_code == 0
            pending_id = self._join(group).member_id
        return generation, member_id, pending_id

    def _consumer_group(self, group: str, *, is_static: bool) -> tuple[int, str, str]:
        """The epoch of its member, the id of the member, and an id that has not joined."""
        beat = m.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="a member",
            instance_id=INSTANCE if is_static else None,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        joined = self._asker.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, beat)
        assert joined.error_code == 0, joined
        (assigned,) = joined.assignment.topic_partitions
        assert len(assigned.partitions) == 4, joined
        return int(joined.member_epoch), beat.member_id, "a pending member"

    def _join(self, group: str, member_id: str = "", instance: str | None = None) -> Any:
        return self._asker.ask(ApiKey.JOIN_GROUP, 9, self._join_request(group, member_id, instance))

    def _join_request(self, group: str, member_id: str, instance: str | None) -> m.JoinGroupRequest:
        return m.JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    # Requests of every shape

    def shape(self, name: str) -> dict[int, list[Any]]:
        """By version: 5 has names, 6 has ids."""
        group, topics = SHAPES[name]
        shown = f"shape {name}" if group else ""
        wanted = request(topics, group=shown, producer=self._producer, topic_ids=self._topic_ids)
        by_name, by_id = (self._asker.ask(ApiKey.TXN_OFFSET_COMMIT, version, wanted) for version in (5, 6))
        return {5: summary(by_name), 6: summary(by_id, self._topic_ids)}

    # Producers that are not verified

    def producer(self, name: str) -> list[int]:
        """The code of each version, with a producer of its own."""
        codes = []
        for version in VERSIONS:
            transactional_id, id_change, epoch_change = PRODUCERS[name]
            own = f"{name} {version}"
            producer_id, epoch = self._new_producer(own)
            if name == "an earlier epoch":
                producer_id, epoch = self._new_producer(own)
            wanted = request(
                group="producers",
                transactional_id=own if transactional_id == "known" else transactional_id,
                producer=(-1 if id_change is None else producer_id + id_change, epoch + epoch_change),
                topic_ids=self._topic_ids,
            )
            answer = self._asker.ask(ApiKey.TXN_OFFSET_COMMIT, version, wanted)
            codes.append(int(answer.topics[0].partitions[0].error_code))
        return codes


if __name__ == "__main__":
    main()
