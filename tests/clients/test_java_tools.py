"""Apache Kafka's own command line tools, which speak the newest version of everything."""

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from tests.clients.conftest import Broker
from tests.clients.crew import Crew
from tests.clients.java_tools import CONSUMER_GROUPS, JavaTools
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
HEARTBEAT_MS = 500


Run = Callable[..., str]


@pytest.fixture
def run(broker: Broker, java: JavaTools) -> Run:
    """Runs a tool against the broker."""

    def run(main_class: str, *arguments: str, stdin: str = "") -> str:
        return java.run(main_class, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)

    return run


def test_topics_and_their_configurations(run: Run) -> None:
    topic = f"topic-{uuid4().hex[:8]}"
    words = ("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    assert f"Created topic {topic}." in run(TOPICS, *words, "--config", "segment.bytes=1048576")
    assert topic in run(TOPICS, "--list").splitlines()

    head, *partitions = run(TOPICS, "--describe", "--topic", topic).splitlines()
    facts = dict(fact.split(": ", 1) for fact in head.split("\t") if ": " in fact)
    assert (facts["Topic"], facts["PartitionCount"], facts["ReplicationFactor"]) == (topic, "2", "1")
    assert "segment.bytes=1048576" in facts["Configs"].split(",")
    assert [partition.split("\t")[2:4] for partition in partitions] == [
        ["Partition: 0", partitions[0].split("\t")[3]],
        ["Partition: 1", partitions[0].split("\t")[3]],
    ]

    run(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    entity = ("--entity-type", "topics", "--entity-name", topic)
    run(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=5000", "--delete-config", "segment.bytes")
    assert _set_configs(run(CONFIGS, "--describe", *entity)) == {"retention.ms": "5000"}

    run(TOPICS, "--delete", "--topic", topic)
    assert topic not in run(TOPICS, "--list").splitlines()


def test_produce_consume_in_a_group_and_look_at_offsets(run: Run, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(3)
    values = [str(number) for number in range(100)]
    run(PRODUCER, "--topic", topic, stdin="\n".join(values) + "\n")
    ends = [line.split(":") for line in run(OFFSETS, "--topic", topic).splitlines()]
    assert [(name, partition) for name, partition, _ in ends] == [(topic, "0"), (topic, "1"), (topic, "2")]
    assert sum(int(end) for _, _, end in ends) == 100
    assert [line.split(":")[2] for line in run(OFFSETS, "--topic", topic, "--time", "earliest").splitlines()] == [
        "0"
    ] * 3

    words = ("--topic", topic, "--group", group, "--timeout-ms", str(PATIENCE_S * 1000))
    first = run(CONSUMER, *words, "--from-beginning", "--max-messages", "40").splitlines()
    second = run(CONSUMER, *words, "--max-messages", "60").splitlines()
    assert sorted(first + second, key=int) == values

    rows = _rows(run(CONSUMER_GROUPS, "--group", group, "--describe"))
    assert [(row["TOPIC"], row["PARTITION"], row["LAG"], row["CONSUMER-ID"]) for row in rows] == [
        (topic, str(partition), "0", "-") for partition in range(3)
    ]
    (state,) = _rows(run(CONSUMER_GROUPS, "--group", group, "--describe", "--state"))
    assert (state["STATE"], state["#MEMBERS"]) == ("Empty", "0")


def test_groups_are_listed_reset_and_deleted(run: Run, make_topic: Callable[..., str], group: str) -> None:
    topic = make_topic(2)
    run(PRODUCER, "--topic", topic, stdin="one\ntwo\nthree\n")
    reset = ("--group", group, "--reset-offsets", "--topic", topic, "--execute")
    moved = _rows(run(CONSUMER_GROUPS, *reset, "--to-latest"))
    assert sorted((row["TOPIC"], row["PARTITION"]) for row in moved) == [(topic, "0"), (topic, "1")]
    rows = _rows(run(CONSUMER_GROUPS, "--group", group, "--describe"))
    assert sum(int(row["CURRENT-OFFSET"]) for row in rows) == 3
    run(CONSUMER_GROUPS, *reset, "--shift-by", "-3")
    rows = _rows(run(CONSUMER_GROUPS, "--group", group, "--describe"))
    assert sum(int(row["LAG"]) for row in rows) == 3

    states = {row["GROUP"]: row["STATE"] for row in _rows(run(CONSUMER_GROUPS, "--list", "--state"))}
    assert states[group] == "Empty"
    assert {row["GROUP"]: row["TYPE"] for row in _rows(run(GROUPS, "--list"))}[group] == "Classic"

    assert "successful" in run(CONSUMER_GROUPS, "--group", group, "--delete")
    assert group not in run(CONSUMER_GROUPS, "--list").splitlines()


def test_three_consumers_share_a_topic_and_one_dies(
    broker: Broker, java: JavaTools, run: Run, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(6)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    words = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group)
    # The one that is to die is missed soon.
    sessions_ms = (6_000, 60_000, 60_000)
    consumers = [
        java.start(
            CONSUMER, *words, *_settings({"session.timeout.ms": session_ms, "heartbeat.interval.ms": HEARTBEAT_MS})
        )
        for session_ms in sessions_ms
    ]

    def has_settled(count: int) -> bool:
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        shares = [len(member.assignment.topic_partitions) for member in described.members]
        return described.state == ConsumerGroupState.STABLE and shares == [6 // count] * count

    try:
        wait_until(lambda: has_settled(3), what="three members with two partitions each")
        rows = _rows(run(CONSUMER_GROUPS, "--group", group, "--describe", "--members", "--verbose"))
        assert sorted(row["#PARTITIONS"] for row in rows) == ["2", "2", "2"]
        consumers[0].kill()
        wait_until(lambda: has_settled(2), what="two members with three partitions each")
        consumers[1].terminate()
        wait_until(lambda: has_settled(1), what="one member with all partitions")
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.communicate()


def test_a_java_consumer_shares_a_group_with_others(
    broker: Broker, java: JavaTools, make_topic: Callable[..., str], group: str
) -> None:
    topic = make_topic(6)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def shares() -> list[int]:
        described = admin.describe_consumer_groups([group])[group].result(PATIENCE_S)
        assigned = [len(member.assignment.topic_partitions) for member in described.members]
        return assigned if described.state == ConsumerGroupState.STABLE else []

    consumer = java.start(CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group", group)
    try:
        with Crew(broker.bootstrap, group, topic, 6) as crew:
            crew.join("librdkafka", "partition.assignment.strategy=range")
            crew.join("kafka-python")
            wait_until(
                lambda: shares() == [2, 2, 2] and [len(member.assigned()) for member in crew.members] == [2, 2],
                what=f"three members with two partitions each; {crew}",
            )
    finally:
        consumer.kill()
        consumer.communicate()


def test_the_cluster(broker: Broker, java: JavaTools, run: Run) -> None:
    cluster_id = java.run(CLUSTER, "cluster-id", "--bootstrap-server", broker.bootstrap).split()[-1]
    assert cluster_id == AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=PATIENCE_S).cluster_id
    head, *apis = run(API_VERSIONS).splitlines()
    assert head.startswith(broker.bootstrap)
    usable = {line.split("(")[0].strip() for line in apis if "usable:" in line}
    assert {"Produce", "Fetch", "JoinGroup", "OffsetCommit", "OffsetFetch", "DescribeConfigs"} <= usable


@NIGHTLY
def test_log_directories_leaders_replicas_quorum_and_rules(
    broker: Broker, java: JavaTools, run: Run, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = make_topic(2)
    dirs = json.loads(run(LOG_DIRS, "--describe", "--topic-list", topic).splitlines()[-1])
    (directory,) = dirs["brokers"][0]["logDirs"]
    assert {each["partition"] for each in directory["partitions"]} == {f"{topic}-0", f"{topic}-1"}

    elected = run(LEADER_ELECTION, "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert "Valid replica already elected" in elected

    plan = tmp_path / "plan.json"
    replicas = {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": ["any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [replicas]}))
    assert "Successfully started" in run(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    assert "is completed" in run(REASSIGN, "--reassignment-json-file", str(plan), "--verify", "--preserve-throttles")
    assert "No partition reassignments found." in run(REASSIGN, "--list")

    status = dict(line.split(":", 1) for line in run(QUORUM, "describe", "--status").splitlines() if ":" in line)
    assert (status["LeaderId"].strip(), status["MaxFollowerLag"].strip()) == ("1", "0")

    refused = java.run(ACLS, "--bootstrap-server", broker.bootstrap, "--list", codes=(0, 1))
    assert "SecurityDisabledException" in refused or "No Authorizer is configured" in refused


def _settings(properties: dict[str, int]) -> list[str]:
    return [word for name, value in properties.items() for word in ("--command-property", f"{name}={value}")]


def _rows(output: str) -> list[dict[str, str]]:
    """The rows of a table under its headings, which begin with GROUP."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    first = next(number for number, words in enumerate(lines) if words[0] == "GROUP")
    return [dict(zip(lines[first], words, strict=False)) for words in lines[first + 1 :]]


def _set_configs(output: str) -> dict[str, str]:
    """What `--describe` of a topic's configurations shows, synonyms left out."""
    entries = [line.split()[0] for line in output.splitlines() if "synonyms=" in line]
    return dict(entry.split("=", 1) for entry in entries)
