"""A served process whose disk hangs: requests that do not need it are answered meanwhile, the others afterwards."""

import os
import sys
from pathlib import Path

import pytest

from kohort.model.errors import ErrorCode
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.waiting import wait_until
from tests.crash.connection import Connection
from tests.crash.writers import TOPIC, create_topic, produce_request

COMMAND = (sys.executable, "-m", "tests.crash.hanging_serve")
BEATS = 20


@pytest.fixture
def flag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "hang"
    monkeypatch.setenv("HANG", str(path))
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    return path


def join(connection: Connection) -> messages.JoinGroupResponse:
    """A member of a group of its own; its session is shorter than the time for which a test waits."""
    find = messages.FindCoordinatorRequest(key="beside", key_type=0)
    wait_until(lambda: connection.ask(ApiKey.FIND_COORDINATOR, 1, find).error_code == 0, what="the coordinator")
    protocol = messages.JoinGroupRequestProtocol(name="range", metadata=b"")
    asked = messages.JoinGroupRequest(
        group_id="beside",
        session_timeout_ms=6_000,
        rebalance_timeout_ms=6_000,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    answers: list[messages.JoinGroupResponse] = []

    def is_joined() -> bool:
        answers.append(connection.ask(ApiKey.JOIN_GROUP, 2, asked))
        return not answers[-1].error_code

    wait_until(is_joined, what="a group")
    joined = answers[-1]
    assigned = messages.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")
    sync = messages.SyncGroupRequest(
        group_id="beside", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assigned]
    )
    assert connection.ask(ApiKey.SYNC_GROUP, 1, sync).error_code == 0
    return joined


def test_who_needs_no_disk_is_answered_while_it_hangs(flag: Path, tmp_path: Path) -> None:
    """Any call of the disk; the member's heartbeats are answered, and its own topic is read from memory."""
    with ServedKohort(tmp_path, {"group.initial.rebalance.delay.ms": "0"}, command=COMMAND) as broker:
        create_topic(broker)
        with Connection(broker.port) as writer, Connection(broker.port) as member:
            joined = join(member)
            beat = messages.HeartbeatRequest(
                group_id="beside", generation_id=joined.generation_id, member_id=joined.member_id
            )
            for number in range(40):  # flushes are quick, so the loop waits for them
                assert code_of(writer.ask(ApiKey.PRODUCE, 8, produce_request(0, [number]))) == 0
            for call in ("fdatasync", *NEW):
                flag.with_suffix(".arrived").unlink(missing_ok=True)
                flag.write_text(call)
                partition = 1 + NEW.index(call) if call in NEW else 0
                writer.send(ApiKey.PRODUCE, 8, produce_request(partition, [number + 1]))
                wait_until(lambda: flag.with_suffix(".arrived").exists(), what=f"{call} to hang")
                for _ in range(BEATS):
                    assert member.ask(ApiKey.HEARTBEAT, 2, beat).error_code == 0
                    assert member.ask(ApiKey.API_VERSIONS, 0, messages.ApiVersionsRequest()).error_code == 0
                    assert values(member) >= 40
                flag.unlink()
                assert code_of(writer.receive(ApiKey.PRODUCE, 8)) == ErrorCode.NONE
        broker.stop()


def test_who_needs_no_disk_is_answered_while_the_load_of_a_partition_hangs(flag: Path, tmp_path: Path) -> None:
    """The first use of a partition after a restart; requests for it are refused until the disk answers."""
    with ServedKohort(tmp_path, command=COMMAND) as broker:
        create_topic(broker)
        with Connection(broker.port) as writer:
            for partition in (0, 1):
                assert code_of(writer.ask(ApiKey.PRODUCE, 8, produce_request(partition, [0]))) == 0
        broker.stop()
        broker.start()
        with Connection(broker.port) as writer, Connection(broker.port) as beside:
            assert code_of(writer.ask(ApiKey.PRODUCE, 8, produce_request(0, [1]))) == 0
            flag.write_text("open_file")
            wanted = produce_request(1, [1])
            assert code_of(writer.ask(ApiKey.PRODUCE, 8, wanted)) == ErrorCode.KAFKA_STORAGE_ERROR
            wait_until(lambda: flag.with_suffix(".arrived").exists(), what="the load to hang")
            for _ in range(BEATS):
                assert leaders(beside) == [1, -1, 1]
                assert code_of(writer.ask(ApiKey.PRODUCE, 8, wanted)) == ErrorCode.KAFKA_STORAGE_ERROR
            flag.unlink()
            wait_until(lambda: code_of(writer.ask(ApiKey.PRODUCE, 8, wanted)) == ErrorCode.NONE, what="the load")
            assert leaders(beside) == [1, 1, 1]


def leaders(connection: Connection) -> list[int]:
    """The leader of each partition; -1 for one that cannot be used."""
    asked = messages.MetadataRequest(topics=[messages.MetadataRequestTopic(name=TOPIC)])
    (topic,) = connection.ask(ApiKey.METADATA, 1, asked).topics
    return [partition.leader_id for partition in sorted(topic.partitions, key=lambda each: each.partition_index)]


NEW = ("pwrite", "make_directory")
"""Calls that a partition without files needs."""


def code_of(response: messages.ProduceResponse) -> int:
    return int(response.responses[0].partition_responses[0].error_code)


def values(connection: Connection) -> int:
    """How many records the first partition has."""
    partition = messages.FetchRequestFetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, log_start_offset=-1, current_leader_epoch=-1
    )
    asked = messages.FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[messages.FetchRequestFetchTopic(topic=TOPIC, partitions=[partition])],
    )
    (topic,) = connection.ask(ApiKey.FETCH, 11, asked).responses
    assert topic.partitions[0].error_code == 0
    return int(topic.partitions[0].high_watermark)
