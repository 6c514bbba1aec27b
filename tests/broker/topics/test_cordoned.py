"""Cordoned log directories: a broker whose only directory is cordoned gets no new partitions (KIP-1066). Texts of a 4.4.0."""

import pytest

from kohort.model.errors import ConfigError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from tests.broker.configs.test_configs import BROKER, DELETE, SET, alter
from tests.broker.harness import Asker, Harness
from tests.broker.topics.test_topics import create, placed, wanted
from tests.broker.virtual_cluster import VirtualCluster

KEY = "cordoned.log.dirs"
ALL_CORDONED = "All brokers are currently fenced, or have all their log directories cordoned."
BY_HAND = "The manual partition assignment includes broker 1, but all its log directories are cordoned."


def cordoned(value: str = "*") -> Harness:
    harness = Harness()
    harness.create("old")
    assert alter(harness, (KEY, SET, value), kind=BROKER, name="1") == 0
    return harness


def created(harness: Harness, topic: m.CreateTopicsRequestCreatableTopic) -> tuple[int, str | None]:
    (result,) = create(harness, topic)
    return result.error_code, result.error_message


def grown(harness: Harness, assignments: list[m.CreatePartitionsAssignment] | None = None) -> tuple[int, str | None]:
    request = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsTopic(name="old", count=2, assignments=assignments)], timeout_ms=1000
    )
    (result,) = harness.ask(ApiKey.CREATE_PARTITIONS, request).results
    return result.error_code, result.error_message


@pytest.mark.parametrize("value", ["*", "memory"])
def test_a_cordoned_broker_gets_no_new_partitions(value: str) -> None:
    harness = cordoned(value)
    assert created(harness, wanted()) == (38, f"Unable to replicate the partition 1 time(s): {ALL_CORDONED}")
    assert created(harness, wanted(replicas=2)) == (38, f"Unable to replicate the partition 2 time(s): {ALL_CORDONED}")
    assert created(harness, wanted(partitions=0))[0] == ErrorCode.INVALID_PARTITIONS
    assert created(harness, placed([1])) == (39, BY_HAND)
    assert grown(harness) == (38, ALL_CORDONED)
    assert grown(harness, [m.CreatePartitionsAssignment(broker_ids=[1])]) == (39, BY_HAND)
    asked = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="auto")], allow_auto_topic_creation=True)
    for _ in range(2):
        (topic,) = harness.ask(ApiKey.METADATA, asked).topics
        assert topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_REPLICATION_FACTOR)
    assert harness.broker.catalog.topic("auto") is None
    assert harness.write("old", b"x") == 0, "what is there stays"
    again = Harness(store=harness.store, node=harness.node)
    assert created(again, placed([1])) == (39, BY_HAND)
    assert alter(again, (KEY, DELETE, None), kind=BROKER, name="1") == 0
    assert created(again, wanted()) == grown(again) == (0, None)


def test_a_cordoned_directory_is_shown_and_no_replica_moves_to_it() -> None:
    harness = cordoned()
    handler = harness.broker.handlers[ApiKey.DESCRIBE_LOG_DIRS]
    (described,) = drain(handler(m.DescribeLogDirsRequest(topics=None), Asker(5), lambda _: None)).results
    assert described.is_cordoned
    topic = m.AlterReplicaLogDirsRequestAlterReplicaLogDirTopic(name="old", partitions=[0, 7])
    moves = [
        m.AlterReplicaLogDirsRequestAlterReplicaLogDir(path=path, topics=[topic])
        for path in ("/none", described.log_dir)
    ]
    for move, code in zip(moves, (ErrorCode.LOG_DIR_NOT_FOUND, ErrorCode.INVALID_REPLICA_ASSIGNMENT), strict=True):
        (result,) = harness.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, m.AlterReplicaLogDirsRequest(dirs=[move])).results
        assert [each.error_code for each in result.partitions] == [code, code]


def test_the_other_brokers_get_the_partitions() -> None:
    cluster = VirtualCluster()
    assert alter(cluster, (KEY, SET, "*"), kind=BROKER, name="1") == 0
    assert created(cluster, wanted("a", partitions=6, replicas=2)) == (0, None)
    topic = cluster.broker.catalog.topic("a")
    assert topic is not None
    assert {frozenset(state.replicas) for state in cluster.broker.catalog.states(topic)} == {frozenset((2, 3))}
    too_many = (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 2 "
        "broker(s) are registered or some brokers have all their log directories cordoned."
    )
    assert created(cluster, wanted("b", replicas=3)) == (38, too_many)
    wish = m.AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=[1, 2])
    request = m.AlterPartitionReassignmentsRequest(
        topics=[m.AlterPartitionReassignmentsRequestReassignableTopic(name="a", partitions=[wish])]
    )
    (answer,) = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request).responses
    assert [(each.error_code, each.error_message) for each in answer.partitions] == [(39, BY_HAND)]


def test_each_broker_has_a_directory_of_its_own() -> None:
    cluster = VirtualCluster()
    cluster.assign("t", [1, 2])
    assert alter(cluster, (KEY, SET, "*"), kind=BROKER, name="2", at=2) == 0
    topic = m.AlterReplicaLogDirsRequestAlterReplicaLogDirTopic(name="t", partitions=[0])
    move = m.AlterReplicaLogDirsRequestAlterReplicaLogDir(path="memory", topics=[topic])
    for broker, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_REPLICA_ASSIGNMENT)):
        request = m.AlterReplicaLogDirsRequest(dirs=[move])
        (result,) = cluster.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, request, at=broker).results
        assert [each.error_code for each in result.partitions] == [code]


def test_a_start_with_another_directory_is_refused() -> None:
    assert created(Harness(cordoned_log_dirs="memory"), wanted())[0] == ErrorCode.INVALID_REPLICATION_FACTOR
    with pytest.raises(ConfigError, match="Missing entries : /none"):
        Harness(cordoned_log_dirs="/none")
