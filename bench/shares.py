"""
`python -m bench.shares`: share groups of Kohort, Apache Kafka and kfake in one run, with the state on disk where there is one.

Eight members of one share group fetch records of one partition and acknowledge them with their next fetch, batches of 100
records of 100 bytes. Every round has a new group. The load and the server share the processors; the processor time of the
server for a thousand records is steadier than the rate.
"""

import argparse
import json
import select
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final
from uuid import UUID

from bench.load.client import decode, open_socket, read_frame, request_frame, send, send_all, send_until_ready
from bench.load.closed_loop import STALLED_SECONDS, LoadError, undisturbed
from bench.load.requests import create_topic, refuse_unless_none
from bench.servers.process import Server
from bench.servers.rivals import RIVALS, Rival, fresh, present
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch

MEMBERS: Final = 8
BATCH_RECORDS: Final = 100
RECORD_BYTES: Final = 100
BATCHES: Final = 10_000
PRODUCERS: Final = 16
TOPIC: Final = "bench-shares"
GROUP_CONFIGS: Final = 32
RESET: Final = "share.auto.offset.reset"
FETCH: Final = (ApiKey.SHARE_FETCH, 1)
HEARTBEAT: Final = (ApiKey.SHARE_GROUP_HEARTBEAT, 1)
HEARTBEAT_SECONDS: Final = 0.2
ASSIGNED_SECONDS_MAX: Final = 60.0
ACCEPT: Final = 1
_TIMESTAMP_MS: Final = 1_700_000_000_000


def write_records(port: int) -> UUID:
    """Make the topic with its records, and return its id."""
    with open_socket(port) as connection:
        create_topic(connection, TOPIC, 1)
        records = [BatchRecord(key=None, value=bytes(RECORD_BYTES))] * BATCH_RECORDS
        batch = bytes(build_batch(records, timestamp_ms=_TIMESTAMP_MS))
        data = m.ProduceRequestPartitionProduceData(index=0, records=batch)
        topic = m.ProduceRequestTopicProduceData(name=TOPIC, partition_data=[data])
        frame = request_frame(ApiKey.PRODUCE, 9, m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]))
        with ExitStack() as stack:
            producers = [stack.enter_context(open_socket(port)) for _ in range(PRODUCERS)]
            answer = decode(ApiKey.PRODUCE, 9, send_all(producers, [frame] * BATCHES)[-1])
            refuse_unless_none(answer.responses[0].partition_responses[0].error_code, "Produce")
        asked = m.MetadataRequest(topics=[m.MetadataRequestTopic(name=TOPIC)])
        (found,) = send(connection, ApiKey.METADATA, 12, asked).topics
        topic_id: UUID = found.topic_id
        return topic_id


class Member:
    """One member of a share group with its connection and its share session."""

    def __init__(self, port: int, group: str, number: int, topic_id: UUID) -> None:
        self.connection = open_socket(port)
        self.epoch = 0
        self._group = group
        self._member_id = f"member-{number}"
        self._topic_id = topic_id
        self._member_epoch = 0
        self._acquired: list[tuple[int, int]] = []

    def heartbeat(self) -> bool:
        """Whether the member has an assignment."""
        request = m.ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=[TOPIC],
        )
        answer = send_until_ready(self.connection, *HEARTBEAT, request, lambda beat: beat.error_code)
        self._member_epoch = answer.member_epoch
        return answer.assignment is not None and bool(answer.assignment.topic_partitions)

    def fetch(self) -> None:
        """Ask for records, and accept those of the last answer."""
        batches = [
            m.ShareFetchRequestAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[ACCEPT])
            for first, last in self._acquired
        ]
        partition = m.ShareFetchRequestFetchPartition(partition_index=0, acknowledgement_batches=batches)
        request = m.ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=BATCH_RECORDS,
            batch_size=BATCH_RECORDS,
            topics=[m.ShareFetchRequestFetchTopic(topic_id=self._topic_id, partitions=[partition])],
        )
        self.connection.sendall(request_frame(*FETCH, request))
        self.epoch += 1

    def take(self) -> int:
        """Take the answer, and return how many records were acknowledged with the request."""
        codes, acquired = read_answer(read_frame(self.connection))
        if codes != {0}:
            raise LoadError(f"ShareFetch returned the codes {sorted(codes)}")
        accepted = sum(last - first + 1 for first, last in self._acquired)
        self._acquired = acquired
        return accepted


class _Reader:
    """Reads a frame of ShareFetch version 1. The library's reader refuses the null of kfake for absent records."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 8
        """After the size and the correlation id."""

    def number(self, size: int) -> int:
        self._at += size
        return int.from_bytes(self._frame[self._at - size : self._at], "big", signed=True)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._frame[self._at]
            self._at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def skip(self, size: int) -> None:
        self._at += size

    def skip_bytes(self) -> None:
        """Skip a string or bytes, whose size is written plus one; 0 is null."""
        self.skip(max(self.varint() - 1, 0))

    def skip_tags(self) -> None:
        for _ in range(self.varint()):
            self.varint()
            self.skip(self.varint())


def read_answer(frame: bytes) -> tuple[set[int], list[tuple[int, int]]]:
    """The codes of an answer to ShareFetch, and the ranges of acquired records."""
    reader = _Reader(frame)
    reader.skip_tags()
    reader.skip(4)
    codes = {reader.number(2)}
    reader.skip_bytes()
    reader.skip(4)
    acquired = []
    for _ in range(reader.varint() - 1):
        reader.skip(16)
        for _ in range(reader.varint() - 1):
            reader.skip(4)
            for _ in ("of the fetch", "of the acknowledgement"):
                codes.add(reader.number(2))
                reader.skip_bytes()
            reader.skip(8)
            reader.skip_tags()
            reader.skip_bytes()
            for _ in range(reader.varint() - 1):
                acquired.append((reader.number(8), reader.number(8)))
                reader.skip(2)
                reader.skip_tags()
            reader.skip_tags()
        reader.skip_tags()
    return codes, acquired


def prepare(port: int, group: str) -> None:
    """Let the group begin with the oldest record, at a coordinator that is there."""
    change = m.IncrementalAlterConfigsRequestAlterableConfig(name=RESET, config_operation=0, value="earliest")
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=GROUP_CONFIGS, resource_name=group, configs=[change]
    )
    alter = m.IncrementalAlterConfigsRequest(resources=[resource])
    find = m.FindCoordinatorRequest(coordinator_keys=[group])
    with open_socket(port) as connection:
        send_until_ready(
            connection, ApiKey.FIND_COORDINATOR, 4, find, lambda found: max(it.error_code for it in found.coordinators)
        )
        (altered,) = send(connection, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter).responses
    refuse_unless_none(altered.error_code, "IncrementalAlterConfigs")


def one_round(server: Server, group: str, topic_id: UUID, seconds: float) -> dict[str, float]:
    """Records acknowledged a second, and milliseconds of the server's processors for a thousand of them."""
    prepare(server.port, group)
    members = [Member(server.port, group, number, topic_id) for number in range(MEMBERS)]
    deadline = time.monotonic() + ASSIGNED_SECONDS_MAX
    waiting = members
    while waiting := [each for each in waiting if not each.heartbeat()]:
        if time.monotonic() > deadline:
            raise LoadError("the members got no partitions")
        time.sleep(HEARTBEAT_SECONDS)
    with undisturbed():
        cpu_before, begun = server.cpu_seconds, time.perf_counter()
        records = _drive(members, begun + seconds)
        elapsed, cpu = time.perf_counter() - begun, server.cpu_seconds - cpu_before
    for each in members:
        each.connection.close()
    return {"per_second": records / elapsed, "cpu_ms_per_thousand": 1e6 * cpu / records}


def _drive(members: Sequence[Member], deadline: float) -> int:
    records = 0
    by_descriptor = {each.connection.fileno(): each for each in members}
    open_requests = len(members)
    with closing(select.epoll()) as epoll:
        for descriptor, each in by_descriptor.items():
            epoll.register(descriptor, select.EPOLLIN)
            each.fetch()
        while open_requests:
            events = epoll.poll(STALLED_SECONDS)
            if not events:
                raise LoadError(f"no answer for {STALLED_SECONDS:g} seconds")
            for descriptor, _ in events:
                member = by_descriptor[descriptor]
                records += member.take()
                if time.perf_counter() < deadline and records < BATCHES * BATCH_RECORDS:
                    member.fetch()
                else:
                    open_requests -= 1
    return records


def measured(rival: Rival, rounds: int, seconds: float) -> dict[str, Any]:
    with fresh(rival, "os") as server:
        topic_id = write_records(server.port)
        if rival.has_jit:
            one_round(server, "warm-up", topic_id, 2 * seconds)
        found = [one_round(server, f"group-{number}", topic_id, seconds) for number in range(rounds)]
    return {name: round(statistics.median(each[name] for each in found), 2) for name in found[0]}


def figures(names: Sequence[str], rounds: int, seconds: float) -> Iterator[tuple[str, Any]]:
    for rival in present(names, lambda name, why: print(f"{name}: {why}")):
        try:
            yield rival.name, measured(rival, rounds, seconds)
        except LoadError as error:
            yield rival.name, str(error)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.shares", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="of one round")
    parser.add_argument("--rivals", default=",".join(rival.name for rival in RIVALS), metavar="NAMES")
    parsed = parser.parse_args()
    print(json.dumps(dict(figures(parsed.rivals.split(","), parsed.rounds, parsed.seconds)), indent=1))


if __name__ == "__main__":
    main()
