"""A shard that has read a log of Apache Kafka knows what that broker knew."""

import struct
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.classic.heartbeat import heartbeat
from kohort.group.classic.states import ClassicGroupState
from kohort.group.configs import GroupConfig
from kohort.group.records import GroupRecord, GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.machine.shard import Result
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import UnknownRecordTypeError
from kohort.records.consumer_protocol import read_assignment
from kohort.records.values import OffsetCommit, OffsetCommitTombstone
from kohort.testing.watched import NoDeadlines
from kohort.wire import messages as m
from tests.group.golden import golden_groups, golden_records
from tests.group.harness import Image, classic_groups
from tests.group.raw_offsets import fresh, picture
from tests.records import kafka_logs


def load(run: str) -> list[GroupShard]:
    """One shard per partition of the run, its log replayed."""
    serde = GroupRecordSerde()
    shards: dict[int, GroupShard] = {}
    for record in golden_records():
        if record.run != run:
            continue
        shard = shards.setdefault(
            record.partition, GroupShard(SnapshotRegistry(), NoDeadlines(), GroupConfig(), lambda: "uuid")
        )
        if record.control:
            _, kind = struct.unpack(">hh", record.key_bytes)
            shard.replay_end_transaction_marker(record.producer_id, record.producer_epoch, committed=kind == 1)
            continue
        try:
            decoded = serde.decode(record.key_bytes, record.value_bytes)
        except UnknownRecordTypeError:
            continue
        shard.replay(record.offset, record.producer_id, record.producer_epoch, decoded)
    return [shard for _, shard in sorted(shards.items())]


@pytest.mark.parametrize("run", ["main", "legacy", *kafka_logs.RUNS])
def test_offsets_are_the_brokers(run: str) -> None:
    ours: dict[str, dict[str, Any]] = {}
    for shard in load(run):
        for group_id, offsets in shard.offsets.by_group.items():
            ours[group_id] = {
                f"{topic}-{partition}": {
                    "offset": offset.offset, "leader_epoch": offset.leader_epoch, "metadata": offset.metadata,
                }
                for (topic, partition), offset in offsets.items()
            }  # fmt: skip
    theirs = {
        group_id: {
            partition: offset | {"leader_epoch": -1 if offset["leader_epoch"] is None else offset["leader_epoch"]}
            for partition, offset in group["offsets"].items()
        }
        for group_id, group in golden_groups()[run].items()
        if group.get("offsets") and group["type"] != "Share"
    }
    assert ours == theirs


def assigned(assignment: bytes) -> list[str]:
    topics = read_assignment(assignment).assigned_partitions if assignment else ()
    return sorted(f"{topic.topic}-{partition}" for topic in topics for partition in topic.partitions)


@pytest.mark.parametrize("run", ["main", "legacy", "main-4.4.0", "expiry-4.4.0"])
def test_classic_groups_are_the_brokers(run: str) -> None:
    """Groups of other types are passed over; what is left of them are their offsets."""
    groups = {group_id: group for shard in load(run) for group_id, group in classic_groups(shard).items()}
    for group_id, theirs in golden_groups()[run].items():
        if theirs["type"] != "Classic":
            continue
        ours = groups.pop(group_id)
        assert ours.state is ClassicGroupState(theirs["state"])
        assert (ours.protocol_type or "") == theirs["protocol_type"]
        assert ours.is_simple == theirs["simple"]
        assert {
            (member.member_id, member.client_id, member.client_host, member.group_instance_id)
            for member in ours.members.values()
        } == {
            (member["member_id"], member["client_id"], member["host"], member["instance_id"])
            for member in theirs["members"]
        }
        assert {member.member_id: assigned(member.assignment) for member in ours.members.values()} == {
            member["member_id"]: sorted(member["assignment"]) for member in theirs["members"]
        }
    types = {golden_groups()[run].get(group_id, {"type": "Streams"})["type"] for group_id in groups}
    assert types <= {"Consumer", "Streams"}


@pytest.mark.parametrize("run", ["main", "main-4.4.0"])
def test_open_transactions_stay_pending(run: str) -> None:
    pending = {
        group_id: dict(partitions) for shard in load(run) for group_id, partitions in shard.offsets.writers.items()
    }
    assert sorted(pending) == ["hold-open-group", "simple"]
    assert golden_groups()[run]["hold-open-group"]["offsets"] == {}


@pytest.mark.parametrize(("run", "with_id"), [("main-4.4.0", 155), ("expiry-4.4.0", 21), ("unclean-4.4.0", 5)])
def test_offsets_have_the_topic_id_that_the_broker_tells(run: str, with_id: int) -> None:
    """Also those of a topic that was created again; a commit with a retention time has no room for the id."""
    topics = kafka_logs.broker(run)["topics"]
    checked = 0
    for shard in load(run):
        for offsets in shard.offsets.by_group.values():
            for (topic, _), offset in offsets.items():
                if offset.topic_id is None:
                    assert offset.expire_timestamp_ms > 0
                    continue
                checked += 1
                assert urlsafe_b64encode(offset.topic_id.bytes).decode().rstrip("=") == topics[topic]["topic_id"]
    assert checked == with_id


def test_members_get_a_session_when_the_log_is_loaded() -> None:
    shard = GroupShard(SnapshotRegistry(), NoDeadlines(), GroupConfig(), lambda: "uuid")
    serde = GroupRecordSerde()
    for record in golden_records():
        if record.run == "main" and record.decoded and record.decoded["key"]["group"] == "hold-classic":
            shard.replay(record.offset, -1, -1, serde.decode(record.key_bytes, record.value_bytes))
    begun = shard.on_loaded(Image(), 0)
    assert sum(deadline.key[0] == "session" for deadline in begun.deadlines) == 2
    group = classic_groups(shard)["hold-classic"]
    leader, generation = group.leader, group.generation
    assert leader is not None
    beat = m.HeartbeatRequest(group_id="hold-classic", generation_id=generation, member_id=leader)
    result: Result[Any, m.HeartbeatResponse] = heartbeat(shard, 0, beat)
    assert result.response is not None
    assert result.response.error_code == 0


COMMITS = st.builds(
    OffsetCommit,
    group_id=st.sampled_from(["one", "other"]),
    topic=st.sampled_from("ab"),
    partition=st.integers(0, 2),
    offset=st.integers(0, 9),
)
TOMBSTONES = st.builds(
    OffsetCommitTombstone,
    group_id=st.sampled_from(["one", "other"]),
    topic=st.sampled_from("ab"),
    partition=st.integers(0, 2),
)


@given(operations=st.lists(st.tuples(st.sampled_from([-1, 7]), st.lists(COMMITS | TOMBSTONES, min_size=1, max_size=9))))
def test_records_of_an_operation_say_together_what_each_says(operations: list[tuple[int, list[GroupRecord]]]) -> None:
    together, one_by_one, offset = fresh(), fresh(), 0
    for producer_id, records in operations:
        together.replay_all(offset, producer_id, 0, records)
        for record in records:
            one_by_one.replay(offset, producer_id, 0, record)
            offset += 1
    assert picture(together) == picture(one_by_one)
