"""Apache Kafka's DumpLogSegments reads what Kohort has left on the disk, and shows what the clients were told."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.testing.served import ServedKohort
from tests.clients.conftest import new_topic
from tests.clients.java_tools import DUMP, JavaTools
from tests.clients.records import CODECS
from tests.clients.share_states import GROUP, WRITES, write_states
from tests.clients.waiting import PATIENCE_S, wait_until

GROUPS = {"group-one": "first", "group-two": "second", "group-three": ""}
"""Groups with the metadata of their commits."""
SHARE_FORMATTER = "org.apache.kafka.tools.consumer.group.share.ShareGroupStateMessageFormatter"
SHARE_RECORDS = 2 + len(WRITES)
"""A snapshot, an update with the epoch of the leader, and the writes."""
BATCHES = 12
BATCH_RECORDS = 100


@dataclass
class Left:
    """
    What a broker has left after a clean stop.

    Attributes:
        topics: one per compression, each with the same records in its only partition; and what the Java producer wrote.
        share_states: what the formatter of the share coordinator's records printed before.
    """

    data_dir: Path
    topics: dict[str, str]
    share_states: str

    def segments(self, partition: str) -> list[Path]:
        return sorted((self.data_dir / partition).glob("*.log"))


@pytest.fixture(scope="module")
def left(own_broker: Callable[[], ServedKohort], java: JavaTools) -> Left:
    broker = own_broker()
    small = {"segment.bytes": "1048576", "index.interval.bytes": "4096"}
    topics = {codec: new_topic(broker.bootstrap, 1, small) for codec in CODECS}
    for codec, topic in topics.items():
        _write(broker.bootstrap, topic, codec)
    topics["java"] = new_topic(broker.bootstrap, 1, {})
    producer = ("--bootstrap-server", broker.bootstrap, "--topic", topics["java"], "--sync")
    java.run("org.apache.kafka.tools.ConsoleProducer", *producer, stdin="one\ntwo\nthree\n")
    for group, metadata in GROUPS.items():
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
        offset = TopicPartition(topics["none"], 0, len(group), metadata, 0)
        consumer.commit(offsets=[offset], asynchronous=False)
        consumer.close()
    _join_and_leave(broker.bootstrap, "group-of-members", topics["none"])
    write_states(broker.bootstrap, topics["none"])
    consumer = ("--bootstrap-server", broker.bootstrap, "--topic", "__share_group_state", "--from-beginning")
    ends = ("--max-messages", str(SHARE_RECORDS), "--timeout-ms", "20000", "--formatter", SHARE_FORMATTER)
    share_states = java.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *consumer, *ends)
    broker.stop()
    return Left(broker.data_dir, topics, share_states)


def test_the_offsets_topic_shows_groups_and_offsets_as_committed(left: Left, java: JavaTools) -> None:
    files = [str(log) for directory in left.data_dir.glob("__consumer_offsets-*") for log in directory.glob("*.log")]
    output = java.run(DUMP, "--offsets-decoder", "--print-data-log", "--files", ",".join(files))
    records = [_decoded(line) for line in output.splitlines() if line.startswith("| offset:")]

    committed = {
        key["data"]["group"]: (
            key["data"]["topic"],
            key["data"]["partition"],
            value["data"]["offset"],
            value["data"]["metadata"],
        )
        for key, value in records
        if key["type"] == "1" and value is not None and key["data"]["group"] in GROUPS
    }
    topic = left.topics["none"]
    # The NUL is confluent-kafka's.
    assert committed == {group: (topic, 0, len(group), f"{text}\0") for group, text in GROUPS.items()}

    generations = [
        value["data"] for key, value in records if key == {"type": "2", "data": {"group": "group-of-members"}}
    ]
    told = [(each["protocolType"], each["generation"], len(each["members"])) for each in generations]
    assert told == [("", 0, 0), ("consumer", 1, 1), ("consumer", 2, 0)]
    (member,) = next(each["members"] for each in generations if each["members"])
    assert (member["clientId"], member["clientHost"]) == ("a-member", "/127.0.0.1")


def test_the_states_of_share_partitions_show_what_was_written(left: Left, java: JavaTools) -> None:
    files = [str(log) for directory in left.data_dir.glob("__share_group_state-*") for log in directory.glob("*.log")]
    output = java.run(DUMP, "--share-group-state-decoder", "--print-data-log", "--files", ",".join(files))
    records = [_decoded(line) for line in output.splitlines() if line.startswith("| offset:")]
    assert {(key["data"]["groupId"], key["data"]["partition"]) for key, _ in records} == {(GROUP, 0)}
    assert [key["type"] for key, _ in records] == ["0", *("1" for _ in range(SHARE_RECORDS - 1))]
    (_, first), (_, led), *updates = records
    assert (first["data"]["snapshotEpoch"], first["data"]["stateEpoch"], first["data"]["startOffset"]) == (0, 2, 0)
    assert (led["data"]["leaderEpoch"], led["data"]["stateBatches"]) == (3, [])
    assert [(each["data"]["startOffset"], _batches(each["data"])) for _, each in updates] == list(WRITES)
    # The formatter writes no ends of lines.
    printed = [json.loads(text) for text in left.share_states.strip().replace("}{", "}\n{").splitlines()]
    assert [(each["key"]["data"], each["value"]["data"]) for each in printed] == [
        (key["data"], value["data"]) for key, value in records
    ]


def _batches(value: dict[str, Any]) -> tuple[tuple[int, ...], ...]:
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    return tuple(tuple(batch[name] for name in names) for batch in value["stateBatches"])


@pytest.mark.parametrize("codec", CODECS)
def test_data_segments_are_valid_with_their_indexes(left: Left, java: JavaTools, codec: str) -> None:
    logs = left.segments(f"{left.topics[codec]}-0")
    assert len(logs) > (1 if codec == "none" else 0)
    indexes = [log.with_suffix(suffix) for log in logs for suffix in (".index", ".timeindex")]
    assert all(index.exists() for index in indexes)
    output = _dump(java, [*logs, *indexes], "--deep-iteration", "--print-data-log")

    batches = [line for line in output if line.startswith("baseOffset:")]
    assert {_field(line, "isvalid") for line in batches} == {"true"}
    assert {_field(line, "compresscodec") for line in batches} == {codec}
    assert all(int(_field(line, "producerId")) >= 0 for line in batches)
    assert next(_field(line, "baseSequence") for line in batches) == "0"
    offsets = [int(line.split()[2]) for line in output if line.startswith("| offset:")]
    assert offsets == list(range(BATCHES * BATCH_RECORDS))


def test_the_java_producer_is_idempotent_by_default(left: Left, java: JavaTools) -> None:
    """Sent one by one: each batch has the next sequence of the same producer."""
    lines = _dump(java, left.segments(f"{left.topics['java']}-0"))
    batches = [line for line in lines if line.startswith("baseOffset:")]
    (producer_id,) = {_field(line, "producerId") for line in batches}
    assert int(producer_id) >= 0
    assert [_field(line, "baseSequence") for line in batches] == ["0", "1", "2"]


def test_indexes_are_sane_and_lead_somewhere(left: Left, java: JavaTools) -> None:
    logs = left.segments(f"{left.topics['none']}-0")
    for suffix in (".index", ".timeindex"):
        files = [log.with_suffix(suffix) for log in logs]
        passed = _dump(java, files, "--index-sanity-check")
        assert sum("passed sanity check" in line for line in passed) == len(files)
    entries = [line for line in _dump(java, [log.with_suffix(".index") for log in logs]) if line.startswith("offset:")]
    assert len(entries) > len(logs)


def _write(bootstrap: str, topic: str, codec: str) -> None:
    """Several batches; texts that are not worth compressing, so that there are segments to roll."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.type": codec})
    for batch in range(BATCHES):
        for number in range(BATCH_RECORDS):
            producer.produce(topic, f"{batch} {number} ".encode() * 300, partition=0)
        assert producer.flush(PATIENCE_S) == 0


def _join_and_leave(bootstrap: str, group: str, topic: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": "a-member"})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), what="the member is in the group")
    consumer.close()


def _dump(java: JavaTools, files: Sequence[Path], *words: str) -> list[str]:
    output = java.run(DUMP, *words, "--files", ",".join(map(str, files)))
    assert "mismatch" not in output.lower(), output
    assert "non-consecutive" not in output.lower(), output
    return output.splitlines()


def _decoded(line: str) -> tuple[Any, Any]:
    """Key and value of a record of the offsets topic, as the decoder prints them; None for a tombstone."""
    match = re.search(r" key: (\{.*?\}\}) payload: (.*)$", line)
    assert match is not None, line
    return json.loads(match[1]), None if match[2] == "<DELETE>" else json.loads(match[2])


def _field(line: str, name: str) -> str:
    match = re.search(rf"\b{name}: (\S+)", line)
    assert match is not None, line
    return match[1]
