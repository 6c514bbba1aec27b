"""What is sent: requests prepared for each measure, once the server has what they need."""

import itertools
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

from bench.load.client import (
    RefusedError,
    ask_all,
    ask_all_until_ready,
    ask_until_ready,
    decode,
    open_socket,
    request_frame,
)
from bench.load.closed_loop import Lane, lanes_of
from kohort.model.errors import ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch

GROUPS: Final = 64
"""They land in some 36 of the 50 partitions of `__consumer_offsets`."""
TOPIC: Final = "bench"
PARTITIONS: Final = 100
DATA_TOPIC: Final = "bench-data"
DATA_PARTITIONS: Final = 8
DATA_PARTITIONS_MAX: Final = 32
"""That a request of 16 KB batches fills; the topic has so many, and measures of less use the first of them."""
BATCH_BYTES: Final = 16_384
BATCH_RECORDS: Final = 16
COMMIT_STEPS: Final = 4
FETCHED_BATCHES: Final = 16
SESSION_TIMEOUT_MS: Final = 45_000
LEAVE_GROUP: Final = (ApiKey.LEAVE_GROUP, 5)
HEARTBEAT: Final = (ApiKey.HEARTBEAT, 4)
JOIN_GROUP: Final = (ApiKey.JOIN_GROUP, 9)
SYNC_GROUP: Final = (ApiKey.SYNC_GROUP, 5)
OFFSET_COMMIT: Final = (ApiKey.OFFSET_COMMIT, 9)
OFFSET_FETCH: Final = (ApiKey.OFFSET_FETCH, 9)
PRODUCE: Final = (ApiKey.PRODUCE, 9)
FETCH: Final = (ApiKey.FETCH, 12)

new_serial: Final = itertools.count().__next__
"""Groups with members have names that no measure before has used: nobody waits for members of former measures."""


def group_of(number: int) -> str:
    return f"bench-{number:02}"


def prepare(port: int) -> None:
    """The topics, and every coordinator that the groups need, loaded."""
    find = messages.FindCoordinatorRequest(coordinator_keys=[group_of(number) for number in range(GROUPS)])
    with open_socket(port) as connection:
        create_topic(connection, TOPIC, PARTITIONS)
        create_topic(connection, DATA_TOPIC, DATA_PARTITIONS_MAX)
        ask_until_ready(
            connection, ApiKey.FIND_COORDINATOR, 4, find, lambda found: max(it.error_code for it in found.coordinators)
        )
        commits = [commit_request(group_of(number), 1) for number in range(GROUPS)]
        ask_all_until_ready([connection], *OFFSET_COMMIT, commits, commit_code)


def create_topic(connection: socket.socket, name: str, partitions: int) -> None:
    topic = messages.CreateTopicsRequestCreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    create = messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    ask_until_ready(connection, ApiKey.CREATE_TOPICS, 7, create, lambda created: created.topics[0].error_code)


def refuse_unless_none(code: int, what: str) -> None:
    """
    Raises:
        RefusedError: the code is another than NONE.
    """
    if code:
        raise RefusedError(f"{what} was answered with {ErrorCode(code).name}")


# -- offsets ------------------------------------------------------------------------------------------------------------


def commit_request(group_id: str, partitions: int, offset: int = 1_000_000) -> Any:
    """A commit of a consumer that is no member: generation -1."""
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
    """All groups, dealt out to the connections; a group commits other offsets each time, until it begins again."""
    asked = [
        commit_request(group_of(number), partitions, 1_000_000 + 1_000 * step + number)
        for step in range(COMMIT_STEPS)
        for number in range(groups)
    ]
    ask_all_until_ready(sockets, *OFFSET_COMMIT, asked, commit_code)
    return lanes_of(sockets, [request_frame(*OFFSET_COMMIT, request) for request in asked], _check_commit)


def _check_commit(answer: bytes) -> None:
    refuse_unless_none(commit_code(decode(*OFFSET_COMMIT, answer)), "OffsetCommit")


def fetch_offsets_request(group_id: str, partitions: int) -> Any:
    topic = messages.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(range(partitions)))
    group = messages.OffsetFetchRequestGroup(group_id=group_id, member_id=None, member_epoch=-1, topics=[topic])
    return messages.OffsetFetchRequest(groups=[group], require_stable=False)


def fetch_offsets_code(fetched: Any) -> int:
    """An offset that is not there counts as an error, for it has been committed."""
    (group,) = fetched.groups
    found = [partition for topic in group.topics for partition in topic.partitions]
    if any(partition.committed_offset < 0 for partition in found) or not found:
        return int(group.error_code) or ErrorCode.OFFSET_NOT_AVAILABLE
    return int(group.error_code) or max(int(partition.error_code) for partition in found)


def fetch_offsets_lanes(sockets: Sequence[socket.socket], groups: int, partitions: int) -> list[Lane]:
    """One group a connection, each with its offsets committed before."""
    names = [group_of(number % groups) for number in range(len(sockets))]
    committed = [commit_request(name, partitions) for name in names]
    ask_all_until_ready(sockets, *OFFSET_COMMIT, committed, commit_code)
    requests = [request_frame(*OFFSET_FETCH, fetch_offsets_request(name, partitions)) for name in names]
    return lanes_of(sockets, requests, _check_fetched_offsets)


def _check_fetched_offsets(answer: bytes) -> None:
    refuse_unless_none(fetch_offsets_code(decode(*OFFSET_FETCH, answer)), "OffsetFetch")


# -- members ------------------------------------------------------------------------------------------------------------


def heartbeat_lanes(sockets: Sequence[socket.socket], groups: int, opened: ExitStack) -> list[Lane]:
    """
    One stable member a group, dealt out to the connections.

    Args:
        opened: gets what makes the members leave; one that stayed would disturb what comes next when its session ends.
    """
    serial = new_serial()
    names = [f"{group_of(number)}-members-{serial}" for number in range(groups)]
    # The first answer is MEMBER_ID_REQUIRED, with the id to come back with (KIP-394).
    invited = ask_all_until_ready(sockets, *JOIN_GROUP, [join_request(name, "") for name in names], join_code)
    rejoin = [join_request(name, it.member_id) for name, it in zip(names, invited, strict=True)]
    joined = ask_all_until_ready(sockets, *JOIN_GROUP, rejoin, join_code)
    syncs = [
        sync_request(name, it.member_id, it.generation_id, [it.member_id])
        for name, it in zip(names, joined, strict=True)
    ]
    ask_all_until_ready(sockets, *SYNC_GROUP, syncs, lambda synced: int(synced.error_code))
    leaves = [leave_request(name, [it.member_id]) for name, it in zip(names, joined, strict=True)]
    opened.callback(leave, sockets, leaves)
    heartbeats = [
        messages.HeartbeatRequest(group_id=name, generation_id=it.generation_id, member_id=it.member_id)
        for name, it in zip(names, joined, strict=True)
    ]
    return lanes_of(sockets, [request_frame(*HEARTBEAT, it) for it in heartbeats], check_heartbeat)


def leave_request(group_id: str, member_ids: Sequence[str]) -> Any:
    members = [messages.LeaveGroupRequestMemberIdentity(member_id=it) for it in member_ids]
    return messages.LeaveGroupRequest(group_id=group_id, members=members)


def leave(sockets: Sequence[socket.socket], leaves: Sequence[Any]) -> None:
    """Part from groups, as well as it can be done over connections that may have failed."""
    with suppress(OSError):
        ask_all(sockets, [request_frame(*LEAVE_GROUP, it) for it in leaves])


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
        assigned: the members whose assignments are in it; those who do not lead have none.
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
    """A batch of 16 KB: sixteen records of equal size that nobody has compressed."""
    return batch_of([BatchRecord(key=None, value=bytes(BATCH_BYTES // BATCH_RECORDS - 16))] * BATCH_RECORDS)


def batch_of(records: Sequence[BatchRecord]) -> bytes:
    """Of now: what is older than a topic's retention is deleted half a minute after a server's start, under the load."""
    return build_batch(records, timestamp_ms=round(1000 * time.time()))


def produce_request(*partitions: int) -> Any:
    """A batch to each of them."""
    data = [messages.ProduceRequestPartitionProduceData(index=index, records=batch()) for index in partitions]
    topic = messages.ProduceRequestTopicProduceData(name=DATA_TOPIC, partition_data=data)
    return messages.ProduceRequest(transactional_id=None, acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_code(produced: Any) -> int:
    """The first error, if there is one."""
    return next((int(it.error_code) for it in produced.responses[0].partition_responses if it.error_code), 0)


def produce_lanes(sockets: Sequence[socket.socket], partitions: int = 1) -> list[Lane]:
    """
    A partition a connection, or as many as a request has. Base offsets, and nothing else, differ from answer to answer.
    """
    asked = [
        produce_request(*((index + place) % max(DATA_PARTITIONS, partitions) for place in range(partitions)))
        for index in range(len(sockets))
    ]
    ask_all_until_ready(sockets, *PRODUCE, asked, produce_code)
    # Size, correlation id, tags; count of topics, name with its length, count of partitions.
    begin = 4 + 4 + 1 + 1 + 1 + len(DATA_TOPIC) + 1
    # Of each partition: index, error code, base offset, append time, log start, two that are empty, tags.
    varying = [range(at + 6, at + 14) for at in range(begin, begin + partitions * 33, 33)]
    return lanes_of(sockets, [request_frame(*PRODUCE, it) for it in asked], _check_produced, varying)


def _check_produced(answer: bytes) -> None:
    refuse_unless_none(produce_code(decode(*PRODUCE, answer)), "Produce")


def fetch_request(partition: int) -> Any:
    """From the beginning, without a session: always the same batches."""
    wanted = messages.FetchRequestFetchPartition(
        partition=partition, fetch_offset=0, partition_max_bytes=FETCHED_BATCHES * len(batch())
    )
    topic = messages.FetchRequestFetchTopic(topic=DATA_TOPIC, partitions=[wanted])
    return messages.FetchRequest(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1 << 24, session_id=0, session_epoch=-1, topics=[topic]
    )


def fetch_lanes(sockets: Sequence[socket.socket]) -> list[Lane]:
    """A partition a connection, with more in it than a fetch brings."""
    filled = [produce_request(index) for index in range(DATA_PARTITIONS) for _ in range(FETCHED_BATCHES + 1)]
    ask_all_until_ready(sockets[:1], *PRODUCE, filled, produce_code)
    requests = [request_frame(*FETCH, fetch_request(index % DATA_PARTITIONS)) for index in range(len(sockets))]
    return lanes_of(sockets, requests, _check_fetched)


def _check_fetched(answer: bytes) -> None:
    fetched = decode(*FETCH, answer)
    refuse_unless_none(fetched.error_code or fetched.responses[0].partitions[0].error_code, "Fetch")
    if len(answer) < FETCHED_BATCHES * BATCH_BYTES // 2:
        raise RefusedError(f"Fetch brought {len(answer)} bytes, less than half of those asked for")
