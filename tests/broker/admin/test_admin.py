"""APIs about the broker itself, where a recording of Apache Kafka cannot say it: paths, sizes, all topics, its own id."""

from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, batch


def described(harness: Harness, topics: Any = None) -> m.DescribeLogDirsResult:
    (result,) = harness.ask(ApiKey.DESCRIBE_LOG_DIRS, m.DescribeLogDirsRequest(topics=topics), version=4).results
    return result  # type: ignore[no-any-return]


def test_a_broker_in_memory_has_no_directory_and_no_volume() -> None:
    harness = Harness()
    harness.create("t", 2)
    harness.write("t", b"x", partition=1)
    found = described(harness)
    assert (found.error_code, found.log_dir, found.total_bytes, found.usable_bytes) == (0, "memory", -1, -1)
    (topic,) = (topic for topic in found.topics if topic.name == "t")
    assert [(each.partition_index, each.partition_size) for each in topic.partitions] == [(0, 0), (1, len(batch(b"x")))]


def test_all_leaders_are_elected_already() -> None:
    harness = Harness()
    for name in ("a", "b"):
        harness.create(name, 1)
    for kind in (0, 1):
        request = m.ElectLeadersRequest(election_type=kind, topic_partitions=None, timeout_ms=5_000)
        answer = harness.ask(ApiKey.ELECT_LEADERS, request, version=2)
        assert answer.error_code == ErrorCode.NONE
        assert {result.topic: list(result.partition_result) for result in answer.replica_election_results} == {
            "a": [],
            "b": [],
        }
    refused = m.ElectLeadersRequest(election_type=7, topic_partitions=None, timeout_ms=5_000)
    answer = harness.ask(ApiKey.ELECT_LEADERS, refused, version=2)
    assert (answer.error_code, list(answer.replica_election_results)) == (ErrorCode.INVALID_REQUEST, [])


@pytest.mark.parametrize(
    ("replicas", "message"),
    [
        ([1], None),
        ([1, 1, 99], "the broker 1 more than once"),
        ([99, 99], "broker 99, but no such broker is registered"),
        ([99, 1, 0], "broker 0, but no such broker is registered"),
    ],
)
def test_the_first_replica_that_is_wrong_is_named_in_their_order(replicas: list[int], message: str | None) -> None:
    harness = Harness()
    harness.create("t", 1)
    wanted = m.AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=replicas)
    topic = m.AlterPartitionReassignmentsRequestReassignableTopic(name="t", partitions=[wanted])
    request = m.AlterPartitionReassignmentsRequest(topics=[topic])
    answer = harness.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, version=1)
    assigned = m.CreateTopicsRequestCreatableReplicaAssignment(partition_index=0, broker_ids=replicas)
    new = m.CreateTopicsRequestCreatableTopic(
        name="n", num_partitions=-1, replication_factor=-1, assignments=[assigned]
    )
    created = harness.ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[new]), version=7)
    for found in (answer.responses[0].partitions[0], created.topics[0]):
        assert found.error_code == (ErrorCode.NONE if message is None else ErrorCode.INVALID_REPLICA_ASSIGNMENT)
        assert found.error_message == (message and f"The manual partition assignment includes {message}.")


def test_the_only_broker_cannot_be_unregistered() -> None:
    """Apache Kafka removes the registration of a running broker, which is fenced then."""
    answer = Harness().ask(ApiKey.UNREGISTER_BROKER, m.UnregisterBrokerRequest(broker_id=1), version=0)
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("controller_id", "code", "message"),
    [
        (1, ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
        (2, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 2 is not currently registered."),
        (-1, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID -1 is not currently registered."),
    ],
)
def test_the_only_controller_cannot_be_unregistered(controller_id: int, code: ErrorCode, message: str) -> None:
    """As Apache Kafka 4.4.0 answers."""
    request = m.UnregisterControllerRequest(controller_id=controller_id)
    answer = Harness(release="4.4.0").ask(ApiKey.UNREGISTER_CONTROLLER, request)
    assert (answer.error_code, answer.error_message) == (code, message)


def test_there_is_no_plugin_for_descriptions_of_topologies() -> None:
    """As Apache Kafka 4.4.0 answers; ids are not looked at."""
    api = ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE
    answer = Harness(release="4.4.0").ask(api, m.StreamsGroupTopologyDescriptionUpdateRequest())
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert answer.error_message == "The broker has no streams group topology description plugin configured."


def test_the_catalog_is_the_metadata_log_of_the_quorum() -> None:
    harness = Harness()
    asked = m.DescribeQuorumRequestTopicData(
        topic_name="__cluster_metadata", partitions=[m.DescribeQuorumRequestPartitionData(partition_index=0)]
    )

    def state() -> tuple[int, int, int]:
        answer = harness.ask(ApiKey.DESCRIBE_QUORUM, m.DescribeQuorumRequest(topics=[asked]), version=2)
        (found,) = answer.topics[0].partitions
        (voter,) = found.current_voters
        assert (found.error_code, found.leader_id, voter.replica_id) == (ErrorCode.NONE, 1, 1)
        assert voter.last_caught_up_timestamp == harness.node.clock.now_ms()
        return found.leader_epoch, found.high_watermark, voter.log_end_offset

    epoch, before, _ = state()
    harness.create("t", 1)
    assert state()[0] == epoch
    assert state()[1] == state()[2] > before
