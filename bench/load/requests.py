"""Requests of each measure, and the topics, groups and offsets that they need."""

import itertools
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from bench.load.client import (
    RefusedError,
    decode,
    open_socket,
    request_frame,
    send_all,
    send_all_until_ready,
    send_until_ready,
)
from bench.load.closed_loop import Lane, lanes_of
from kohort.model.errors import ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch

GROUPS: Final = 64
"""Their offsets are in some 36 of the 50 partitions of `__consumer_offsets`."""
TOPIC: Final = "bench"
PARTITIONS: Final = 100
DATA_TOPIC: Final = "bench-data"
DATA_PARTITIONS: Final = 8
DATA_PARTITIONS_MAX: Final = 32
"""Most partitions in one Produce request. The topic has this many; smaller measures use the first of them."""
BATCH_BYTES: Final = 16_384
BATCH_RECORDS: Final = 16
COMMIT_STEPS: Final = 4
FETCHED_BATCHES: Final = 16
SESSION_TIMEOUT_MS: Final = 45_000
LEAVE_GROUP: Final = (ApiKey.LEAVE_GROUP, 5)
HEARTBEAT: Final = (ApiKey.HEARTBEAT, 4)
CONSUMER_HEARTBEAT: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)
"""Version 0 is the one that kfake serves, too."""
JOIN_GROUP: Final = (ApiKey.JOIN_GROUP, 9)
SYNC_GROUP: Final = (ApiKey.SYNC_GROUP, 5)
OFFSET_COMMIT: Final = (ApiKey.OFFSET_COMMIT, 9)
OFFSET_FETCH: Final = (ApiKey.OFFSET_FETCH, 9)
PRODUCE: Final = (ApiKey.PRODUCE, 9)
FETCH: Final = (ApiKey.FETCH, 12)

new_serial: Final = itertools.count().__next__
"""Return a new number for group names, so that no measure meets members of an earlier one."""


def group_of(number: int) -> str:
    return f"bench-{number:02}"


def prepare(port: int) -> None:
    """Create the topics, and wait until all coordinator partitions of the groups are loaded."""
    find = messages.FindCoordinatorRequest(coordinator_keys=[group_of(number) for number in range(GROUPS)])
    with open_socket(port) as connection:
        create_topic(connection, TOPIC, PARTITIONS)
        create_topic(connection, DATA_TOPIC, DATA_PARTITIONS_MAX)
        send_until_ready(
            connection, ApiKey.FIND_COORDINATOR, 4, find, lambda found: max(it.error_code for it in found.coordinators)
        )
        commits = [commit_request(group_of(number), 1) for number in range(GROUPS)]
        send_all_until_ready([connection], *OFFSET_COMMIT, commits, commit_code)


def create_topic(connection: socket.socket, name: str, partitions: int) -> None:
    topic = messages.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    create = messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    send_until_ready(connection, ApiKey.CREATE_TOPICS, 7, create, lambda created: created.topics[0].error_code)


def refuse_unless_none(code: int, what: str) -> None:
    """
    Raises:
        RefusedError: the code is not NONE.
    """
    if code:
        raise RefusedError(f"{what} returned {ErrorCode(code).name}")


# -- offsets ------------------------------------------------------------------------------------------------------------


def commit_request(group_id: str, partitions: int, offset: int = 1_000_000) -> Any:
    """Make a commit of a simple consumer: generation -1."""
    committed = [
        messages.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        for index in range(partitions)
    ]
    return messages.OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[messages.OffsetCommitRequestTopic(name=TOPIC, partitions=committed)],
    )


def commit_code(committed: Any) -> int:
    return max(int(partition.error_code) for topic in committed.topics for partition in topic.partitions)


def commit_lanes(sockets: Sequence[socket.socket], groups: int, partitions: int) -> list[Lane]:
    """Distribute the groups over the connections. Each commit of a group has other offsets, in a cycle."""
    requests = [
        commit_request(group_of(number), partitions, 1_000_000 + 1_000 * step + number)
        for step in range(COMMIT_STEPS)
        for number in range(groups)
    ]
    send_all_until_ready(sockets, *OFFSET_COMMIT, requests, commit_code)
    return lanes_of(sockets, [request_frame(*OFFSET_COMMIT, request) for request in requests], _check_commit)


def _check_commit(answer: bytes) -> None:
    refuse_unless_none(commit_code(decode(*OFFSET_COMMIT, answer)), "OffsetCommit")


def fetch_offsets_request(group_id: str, partitions: int) -> Any:
    topic = messages.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(partitions)))
    group = messages.OffsetFetchRequestGroup(group_id=group_id, member_id=None, member_epoch=-1, topics=[topic])
    return messages.OffsetFetchRequest(groups=[group], require_stable=False)


def fetch_offsets_code(fetched: Any) -> int:
    """Return the error code. A missing offset is an error, because it was committed before."""
    (group,) = fetched.groups
    found = [partition for topic in group.topics for partition in topic.partitions]
    if any(partition.committed_offset < 0 for partition in found) or not found:
        return int(group.error_code) or ErrorCode.OFFSET_NOT_AVAILABLE
    return int(group.error_code) or max(int(partition.error_code) for partition in found)


def fetch_offsets_lanes(sockets: Sequence[socket.socket], groups: int, partitions: int) -> list[Lane]:
    """Make a lane for each group. Its offsets are committed first."""
    names = [group_of(number % groups) for number in range(len(sockets))]
    committed = [commit_request(name, partitions) for name in names]
    send_all_until_ready(sockets, *OFFSET_COMMIT, committed, commit_code)
    requests = [request_frame(*OFFSET_FETCH, fetch_offsets_request(name, partitions)) for name in names]
    return lanes_of(sockets, requests, _check_fetched_offsets)


def _check_fetched_offsets(answer: bytes) -> None:
    refuse_unless_none(fetch_offsets_code(decode(*OFFSET_FETCH, answer)), "OffsetFetch")


# -- members ------------------------------------------------------------------------------------------------------------


def heartbeat_lanes(sockets: Sequence[socket.socket], groups: int, opened: ExitStack) -> list[Lane]:
    """
    Make lanes of groups with one stable member each.

    Args:
        opened: receives the callback that makes the members leave. Their expiry would disturb later measures.
    """
    serial = new_serial()
    names = [f"{group_of(number)}-members-{serial}" for number in range(groups)]
    # The first response is MEMBER_ID_REQUIRED with the member id (KIP-394).
    invited = send_all_until_ready(sockets, *JOIN_GROUP, [join_request(name, "") for name in names], join_code)
    rejoin = [join_request(name, it.member_id) for name, it in zip(names, invited, strict=True)]
    joined = send_all_until_ready(sockets, *JOIN_GROUP, rejoin, join_code)
    syncs = [
        sync_request(name, it.member_id, it.generation_id, [it.member_id])
        for name, it in zip(names, joined, strict=True)
    ]
    send_all_until_ready(sockets, *SYNC_GROUP, syncs, lambda synced: int(synced.error_code))
    leaves = [leave_request(name, [it.member_id]) for name, it in zip(names, joined, strict=True)]
    opened.callback(leave, sockets, leaves)
    heartbeats = [
        messages.HeartbeatRequest(group_id=name, generation_id=it.generation_id, member_id=it.member_id)
        for name, it in zip(names, joined, strict=True)
    ]
    return lanes_of(sockets, [request_frame(*HEARTBEAT, it) for it in heartbeats], check_heartbeat)


def consumer_heartbeat_lanes(sockets: Sequence[socket.socket], groups: int, opened: ExitStack) -> list[Lane]:
    """
    Make lanes of consumer groups (KIP-848) with one member each, which is at its target assignment.

    Args:
        opened: receives the callback that makes the members leave.
    """
    serial = new_serial()
    names = [f"{group_of(number)}-consumers-{serial}" for number in range(groups)]
    joins = [
        messages.ConsumerGroupHeartbeatRequest(
            group_id=name,
            member_id=f"member-{name}",
            member_epoch=0,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        for name in names
    ]
    joined = send_all_until_ready(sockets, *CONSUMER_HEARTBEAT, joins, lambda answer: int(answer.error_code))
    leaves = [
        messages.ConsumerGroupHeartbeatRequest(group_id=name, member_id=f"member-{name}", member_epoch=-1)
        for name in names
    ]
    opened.callback(_leave_consumer_groups, sockets, leaves)
    heartbeats = [
        messages.ConsumerGroupHeartbeatRequest(
            group_id=name, member_id=f"member-{name}", member_epoch=answer.member_epoch
        )
        for name, answer in zip(names, joined, strict=True)
    ]
    return lanes_of(sockets, [request_frame(*CONSUMER_HEARTBEAT, it) for it in heartbeats], _check_consumer_heartbeat)


def _leave_consumer_groups(sockets: Sequence[socket.socket], leaves: Sequence[Any]) -> None:
    with suppress(OSError):
        send_all(sockets, [request_frame(*CONSUMER_HEARTBEAT, it) for it in leaves])


def _check_consumer_heartbeat(answer: bytes) -> None:
    refuse_unless_none(decode(*CONSUMER_HEARTBEAT, answer).error_code, "ConsumerGroupHeartbeat")


def leave_request(group_id: str, member_ids: Sequence[str]) -> Any:
    members = [messages.LeaveGroupRequestMemberIdentity(member_id=it) for it in member_ids]
    return messages.LeaveGroupRequest(group_id=group_id, members=members)


def leave(sockets: Sequence[socket.socket], leaves: Sequence[Any]) -> None:
    """Leave groups. Errors are ignored: a connection may have failed."""
    with suppress(OSError):
        send_all(sockets, [request_frame(*LEAVE_GROUP, it) for it in leaves])


def join_request(group_id: str, member_id: str, metadata: bytes = b"") -> Any:
    return messages.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[messages.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join_code(joined: Any) -> int:
    return 0 if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else int(joined.error_code)


def sync_request(group_id: str, member_id: str, generation_id: int, assigned: Sequence[str]) -> Any:
    """
    Args:
        assigned: the members with assignments; only the leader sends them.
    """
    return messages.SyncGroupRequest(
        group_id=group_id,
        generation_id=generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[messages.SyncGroupRequestAssignment(member_id=it, assignment=bytes(32)) for it in assigned],
    )


def check_heartbeat(answer: bytes) -> None:
    refuse_unless_none(decode(*HEARTBEAT, answer).error_code, "Heartbeat")


# -- records ------------------------------------------------------------------------------------------------------------


def batch() -> bytes:
    """Make a batch of 16 KB: sixteen uncompressed records of equal size."""
    return batch_of([BatchRecord(key=None, value=bytes(BATCH_BYTES // BATCH_RECORDS - 16))] * BATCH_RECORDS)


def batch_of(records: Sequence[BatchRecord]) -> bytes:
    """Timestamp of the records: the current time, because retention would delete old records during the measure."""
    return build_batch(records, timestamp_ms=round(1000 * time.time()))


def produce_request(*partitions: int) -> Any:
    """Make a Produce request with a batch for each partition."""
    data = [messages.ProduceRequestPartitionProduceData(index=index, records=batch()) for index in partitions]
    topic = messages.ProduceRequestTopicProduceData(name=DATA_TOPIC, partition_data=data)
    return messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_code(produced: Any) -> int:
    """Return the first error code."""
    return next((int(it.error_code) for it in produced.responses[0].partition_responses if it.error_code), 0)


def produce_lanes(sockets: Sequence[socket.socket], partitions: int = 1) -> list[Lane]:
    """
    Make lanes of Produce requests. Only base offsets differ between responses.
    """
    requests = [
        produce_request(*((index + place) % max(DATA_PARTITIONS, partitions) for place in range(partitions)))
        for index in range(len(sockets))
    ]
    send_all_until_ready(sockets, *PRODUCE, requests, produce_code)
    # Size, correlation id, tags; topic count, topic name, partition count.
    begin = 4 + 4 + 1 + 1 + 1 + len(DATA_TOPIC) + 1
    # Each partition: index, error code, base offset, append time, log start, two empty fields, tags.
    varying = [range(at + 6, at + 14) for at in range(begin, begin + partitions * 33, 33)]
    return lanes_of(sockets, [request_frame(*PRODUCE, it) for it in requests], _check_produced, varying)


def _check_produced(answer: bytes) -> None:
    refuse_unless_none(produce_code(decode(*PRODUCE, answer)), "Produce")


def fetch_request(partition: int) -> Any:
    """Make a Fetch request from the log start, without a session. It always returns the same batches."""
    wanted = messages.FetchRequestFetchPartition(
        partition=partition, fetch_offset=0, partition_max_bytes=FETCHED_BATCHES * len(batch())
    )
    topic = messages.FetchRequestFetchTopic(topic=DATA_TOPIC, partitions=[wanted])
    return messages.FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 24, session_id=0, session_epoch=-1, topics=[topic]
    )


def fetch_lanes(sockets: Sequence[socket.socket]) -> list[Lane]:
    """Make a lane for each partition. A partition has more data than one Fetch returns."""
    filled = [produce_request(index) for index in range(DATA_PARTITIONS) for _ in range(FETCHED_BATCHES + 1)]
    send_all_until_ready(sockets[:1], *PRODUCE, filled, produce_code)
    requests = [request_frame(*FETCH, fetch_request(index % DATA_PARTITIONS)) for index in range(len(sockets))]
    return lanes_of(sockets, requests, _check_fetched)


def _check_fetched(answer: bytes) -> None:
    fetched = decode(*FETCH, answer)
    refuse_unless_none(fetched.error_code or fetched.responses[0].partitions[0].error_code, "Fetch")
    if len(answer) < FETCHED_BATCHES * BATCH_BYTES // 2:
        raise RefusedError(f"Fetch returned {len(answer)} bytes, less than half of the requested size")
