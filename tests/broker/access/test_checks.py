"""
What the recorded matrix does not show: requests whose elements differ, what is logged, and published failures of other brokers,
each with its id in the name of its test.
"""

from typing import Any
from uuid import UUID

import pytest

from kohort.broker.ports import NoResponse
from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.access.secured import Secured
from tests.broker.harness import batch, produce_request

REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
GROUP_REFUSED = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
ID_REFUSED = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
NOT_ATTEMPTED = int(ErrorCode.OPERATION_NOT_ATTEMPTED)


@pytest.fixture
def broker() -> Secured:
    made = Secured(offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    for name in ("a", "b", "c"):
        made.create(name, 2)
    return made


def coordinators(broker: Secured) -> None:
    for key_type in (0, 1):
        find = m.FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        while broker.ask_as("admin", ApiKey.FIND_COORDINATOR, find).coordinators[0].error_code:
            broker.node.advance(100)


def end_offset(broker: Secured, topic: str) -> int:
    found = broker.broker.partitions.find(topic, 0)
    assert found is not None
    return found.log.end_offset


# Produce


def produced(broker: Secured, request: m.ProduceRequest, version: int = 12) -> Any:
    return broker.ask_as("alice", ApiKey.PRODUCE, request, version)


def codes(topics: Any) -> dict[str, list[int]]:
    """By topic: the errors of its partitions."""
    found = {}
    for topic in topics:
        partitions = getattr(topic, "partition_responses", None) or topic.partitions
        found[getattr(topic, "name", None) or topic.topic] = [partition.error_code for partition in partitions]
    return found


def test_cve_2018_17196_a_transactional_batch_behind_a_plain_one_needs_the_transactional_id(broker: Secured) -> None:
    broker.authorizer.allow("WRITE", "TOPIC", "a")
    hidden = batch(b"x", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    request = produce_request("a", {0: batch(b"y"), 1: batch(b"y") + hidden}, transactional_id="x")
    for asked in (request, produce_request("a", {0: batch(b"y") + hidden})):
        (topic,) = produced(broker, asked).responses
        assert {partition.error_code for partition in topic.partition_responses} == {ID_REFUSED}
    assert end_offset(broker, "a") == 0


def test_a_producer_that_wants_no_answer_is_disconnected_and_what_it_may_write_is_written(broker: Secured) -> None:
    broker.authorizer.allow("WRITE", "TOPIC", "a")
    data = [m.ProduceRequestPartitionProduceData(index=0, records=batch(b"x"))]
    topics = [m.ProduceRequestTopicProduceData(name=name, partition_data=data) for name in ("a", "b")]
    request = m.ProduceRequest(transactional_id=None, acks=0, timeout_ms=1_000, topic_data=topics)
    assert produced(broker, request) is NoResponse.CLOSE_CONNECTION
    assert [end_offset(broker, name) for name in ("a", "b")] == [1, 0]
    assert produced(broker, produce_request("a", {0: batch(b"x")}, acks=0)) is NoResponse.NO_OP


def test_records_that_are_no_batch_are_refused_by_the_handler(broker: Secured) -> None:
    broker.authorizer.allow("WRITE", "TOPIC", "a")
    garbage = batch(b"x")[:8] + b"\xff" * 53
    answer = produced(
        broker,
        produce_request(
            "a",
            {
                0: garbage,
                1: b"",
            },
        ),
    )
    if answer is not NoResponse.CLOSE_CONNECTION:
        assert 0 not in codes(answer.responses)["a"]
    assert end_offset(broker, "a") == 0


# Fetch


@pytest.mark.parametrize("version", [12, 17])
def test_cve_2018_1288_a_fetch_that_names_a_replica_needs_a_permission_of_brokers(
    version: int, broker: Secured
) -> None:
    """The id of the replica is in a field of the request, and from version 15 on in a tagged one."""
    broker.write("a", b"x")
    broker.authorizer.allow("ALL", "TOPIC", "*")
    topic = broker.broker.catalog.newest("a")
    assert topic is not None
    wanted = [m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)]
    topics = [m.FetchRequestFetchTopic(topic="a", topic_id=topic.topic_id, partitions=wanted)]
    replica = m.FetchRequestReplicaState(replica_id=5, replica_epoch=1)
    request = m.FetchRequest(replica_id=5, replica_state=replica, max_wait_ms=0, session_epoch=-1, topics=topics)
    for code in (REFUSED, int(ErrorCode.NOT_LEADER_OR_FOLLOWER)):
        (answer,) = broker.ask_as("alice", ApiKey.FETCH, request, version).responses
        assert [(one.error_code, one.records) for one in answer.partitions] == [(code, b"")]
        broker.authorizer.allow("CLUSTER_ACTION", "CLUSTER", "kafka-cluster")


# Groups


def test_a_sync_without_a_protocol_is_invalid_whoever_sends_it(broker: Secured) -> None:
    request = m.SyncGroupRequest(group_id="g", generation_id=1, member_id="one")
    named = m.SyncGroupRequest(
        group_id="g", generation_id=1, member_id="one", protocol_type="consumer", protocol_name="range"
    )
    invalid = int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    asked = [(request, 5, invalid), (named, 5, GROUP_REFUSED), (request, 4, GROUP_REFUSED)]
    for one, version, code in asked:
        assert broker.ask_as("alice", ApiKey.SYNC_GROUP, one, version).error_code == code


def test_an_unknown_group_is_an_error_of_the_deletion_even_if_all_topics_are_refused(broker: Secured) -> None:
    coordinators(broker)
    broker.authorizer.allow("DELETE", "GROUP", "g")
    partition = m.OffsetDeleteRequestPartition(partition_index=0)
    request = m.OffsetDeleteRequest(group_id="g", topics=[m.OffsetDeleteRequestTopic(name="a", partitions=[partition])])
    answer = broker.ask_as("alice", ApiKey.OFFSET_DELETE, request)
    assert (answer.error_code, codes(answer.topics)) == (int(ErrorCode.GROUP_ID_NOT_FOUND), {})
    commit = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    topics = [m.OffsetCommitRequestTopic(name="a", partitions=[commit])]
    broker.ask_as("admin", ApiKey.OFFSET_COMMIT, m.OffsetCommitRequest(group_id="g", topics=topics), 9)
    answer = broker.ask_as("alice", ApiKey.OFFSET_DELETE, request)
    assert (answer.error_code, codes(answer.topics)) == (0, {"a": [REFUSED]})


def test_a_described_group_does_not_name_a_topic_that_the_user_may_not_describe(broker: Secured) -> None:
    """Kafka shows the subscriptions of members without an assignment."""
    coordinators(broker)
    beat = m.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="one",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["a", "missing"],
        topic_partitions=[],
    )
    assert broker.ask_as("admin", ApiKey.CONSUMER_GROUP_HEARTBEAT, beat).error_code == 0
    broker.authorizer.allow("DESCRIBE", "GROUP", "g")
    request = m.ConsumerGroupDescribeRequest(group_ids=["g"])
    for names in ((), ("a",), ("a", "missing")):
        broker.authorizer.rules[1:] = []
        for name in names:
            broker.authorizer.allow("DESCRIBE", "TOPIC", name)
        (group,) = broker.ask_as("alice", ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups
        shown = group.error_code, len(group.members), group.group_state
        assert shown == ((0, 1, "Stable") if len(names) == 2 else (REFUSED, 0, ""))


# Existence


def test_kafka_3396_and_10774_who_may_not_describe_a_topic_cannot_tell_whether_it_exists(broker: Secured) -> None:
    """Answers about a topic that exists and about one that does not are equal, but for their names and ids."""
    asked: list[tuple[ApiKey, int, Any]] = [
        (ApiKey.METADATA, 12, lambda name: m.MetadataRequest(topics=[m.MetadataRequestTopic(name=name)])),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, described),
        (ApiKey.LIST_OFFSETS, 7, listed),
        (ApiKey.DELETE_TOPICS, 6, lambda name: deleted(m.DeleteTopicsRequestDeleteTopicState(name=name))),
        (ApiKey.CREATE_TOPICS, 7, created),
        (ApiKey.PRODUCE, 12, lambda name: produce_request(name, {0: batch(b"x")})),
    ]
    for api, version, make in asked:
        known, unknown = (repr(broker.ask_as("alice", api, make(name), version)) for name in ("a", "z"))
        assert known.replace("'a'", "'z'") == unknown, api.api_name


def described(name: str) -> m.DescribeTopicPartitionsRequest:
    return m.DescribeTopicPartitionsRequest(topics=[m.DescribeTopicPartitionsRequestTopicRequest(name=name)])


def listed(*names: str) -> m.ListOffsetsRequest:
    wanted = [m.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    return m.ListOffsetsRequest(
        replica_id=-1, topics=[m.ListOffsetsTopic(name=name, partitions=wanted) for name in names]
    )


def deleted(*states: Any) -> m.DeleteTopicsRequest:
    return m.DeleteTopicsRequest(topics=list(states), timeout_ms=1_000)


def created(*names: str) -> m.CreateTopicsRequest:
    topic = m.CreateTopicsRequestCreatableTopic
    return m.CreateTopicsRequest(topics=[topic(name=name, num_partitions=1, replication_factor=1) for name in names])


def test_redpanda_5370_a_coordinator_that_may_not_be_found_makes_no_internal_topic(broker: Secured) -> None:
    find = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["x"])
    (found,) = broker.ask_as("alice", ApiKey.FIND_COORDINATOR, find).coordinators
    assert found.error_code == GROUP_REFUSED
    assert broker.broker.catalog.newest(CONSUMER_OFFSETS) is None


def test_kafka_19147_a_group_coordinator_has_the_authorizer_of_its_broker(broker: Secured) -> None:
    coordinators(broker)
    hosted = broker.hosted._hosted[CONSUMER_OFFSETS]
    shard_authorizer = hosted.runtime.query(0, lambda shard, _: shard.context.authorizer)
    assert shard_authorizer is broker.authorizer


# Elements of one request


def test_elements_of_one_request_are_decided_one_by_one(broker: Secured) -> None:
    broker.authorizer.allow("DESCRIBE", "TOPIC", "a")
    broker.authorizer.allow("DESCRIBE", "TOPIC", "z")
    answer = broker.ask_as("alice", ApiKey.LIST_OFFSETS, listed("a", "b", "z", "y"), 7)
    assert codes(answer.topics) == {"a": [0], "b": [REFUSED], "z": [UNKNOWN], "y": [REFUSED]}


def test_one_refused_topic_leaves_all_partitions_out_of_the_transaction(broker: Secured) -> None:
    broker.authorizer.allow("WRITE", "TRANSACTIONAL_ID", "x")
    for name in ("a", "z"):
        broker.authorizer.allow("WRITE", "TOPIC", name)
    topics = [m.AddPartitionsToTxnTopic(name=name, partitions=[0, 7]) for name in ("a", "b", "z")]
    what: dict[str, Any] = {"v3_and_below_producer_id": 1, "v3_and_below_producer_epoch": 0}
    request = m.AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics, **what)
    answer = broker.ask_as("alice", ApiKey.ADD_PARTITIONS_TO_TXN, request, 3)
    found = {
        topic.name: [each.partition_error_code for each in topic.results_by_partition]
        for topic in answer.results_by_topic_v3_and_below
    }
    assert found == {"a": [NOT_ATTEMPTED, UNKNOWN], "b": [REFUSED, REFUSED], "z": [UNKNOWN, UNKNOWN]}


@pytest.mark.parametrize(("operation", "code"), [("ALTER", 0), ("CLUSTER_ACTION", 0), ("DESCRIBE", 31)])
def test_one_of_two_permissions_is_enough_for_markers(operation: str, code: int, broker: Secured) -> None:
    broker.authorizer.allow(operation, "CLUSTER", "kafka-cluster")
    topics = [m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name="a", partition_indexes=[0])]
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=topics
    )
    answer = broker.ask_as("alice", ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]))
    assert codes(answer.markers[0].topics) == {"a": [code]}


def test_topics_are_deleted_by_name_and_by_id_as_far_as_they_may_be(broker: Secured) -> None:
    state = m.DeleteTopicsRequestDeleteTopicState
    ids = {name: broker.broker.catalog.newest(name).topic_id for name in ("b", "c")}  # type: ignore[union-attr]
    broker.authorizer.allow("DELETE", "TOPIC", "a")
    broker.authorizer.allow("DESCRIBE", "TOPIC", "b")
    request = deleted(
        state(name="a"), state(name=None, topic_id=ids["b"]), state(name=None, topic_id=ids["c"]), state(name="y")
    )
    answer = broker.ask_as("alice", ApiKey.DELETE_TOPICS, request, 6)
    found = {(topic.name, UUID(int=topic.topic_id.int) if topic.error_code and topic.topic_id else None): topic.error_code
             for topic in answer.responses}  # fmt: skip
    assert found == {("a", None): 0, ("b", ids["b"]): REFUSED, (None, ids["c"]): REFUSED, ("y", None): REFUSED}


def test_a_repeated_name_is_an_error_of_the_request_whoever_asks(broker: Secured) -> None:
    answer = broker.ask_as("alice", ApiKey.CREATE_TOPICS, created("n", "n", "o"))
    found = {(topic.name, topic.error_code) for topic in answer.topics}
    assert found == {("n", int(ErrorCode.INVALID_REQUEST)), ("o", REFUSED)}


def test_groups_of_one_fetch_of_offsets_have_answers_of_their_own(broker: Secured) -> None:
    """Answers of a stable fetch come later."""
    coordinators(broker)
    for group in ("g", "h"):
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=5)
        topics = [m.OffsetCommitRequestTopic(name=name, partitions=[partition]) for name in ("a", "b")]
        broker.ask_as("admin", ApiKey.OFFSET_COMMIT, m.OffsetCommitRequest(group_id=group, topics=topics), 9)
        broker.authorizer.allow("DESCRIBE", "GROUP", group)
    broker.authorizer.allow("DESCRIBE", "TOPIC", "a")
    named = [m.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("a", "b")]
    groups = [
        m.OffsetFetchRequestGroup(group_id="g", topics=None),
        m.OffsetFetchRequestGroup(group_id="i", topics=named),
        m.OffsetFetchRequestGroup(group_id="h", topics=named),
    ]
    for is_stable in (False, True):
        request = m.OffsetFetchRequest(groups=groups, require_stable=is_stable)
        answer = broker.ask_as("alice", ApiKey.OFFSET_FETCH, request, 9)
        found = {group.group_id: (group.error_code, codes(group.topics)) for group in answer.groups}
        assert found == {
            "g": (0, {"a": [0]}),
            "h": (0, {"a": [0], "b": [REFUSED]}),
            "i": (GROUP_REFUSED, {}),
        }


def page(broker: Secured, *names: str, cursor: str | None = None, limit: int = 100) -> list[tuple[str, int, int]]:
    where = m.DescribeTopicPartitionsRequestCursor
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequestTopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else where(topic_name=cursor, partition_index=0),
    )
    answer = broker.ask_as("alice", ApiKey.DESCRIBE_TOPIC_PARTITIONS, request)
    return [(topic.name, topic.error_code, len(topic.partitions)) for topic in answer.topics]


def test_a_page_ends_with_the_topics_that_are_refused(broker: Secured) -> None:
    assert page(broker) == []
    broker.authorizer.allow("DESCRIBE", "TOPIC", "b")
    broker.authorizer.allow("DESCRIBE", "TOPIC", "c")
    assert page(broker) == [("b", 0, 2), ("c", 0, 2)]
    assert page(broker, "a", "b", "c", limit=2) == [("b", 0, 2), ("a", REFUSED, 0)]
    assert page(broker, "a", "b", "c", cursor="b") == [("b", 0, 2), ("c", 0, 2)]
    assert page(broker, "a", "b", cursor="a") == [("b", 0, 2), ("a", REFUSED, 0)]
    invalid = int(ErrorCode.INVALID_REQUEST)
    assert page(broker, "a", "b", cursor="c") == [("a", invalid, 0), ("b", invalid, 0)]


def test_no_topic_of_an_old_request_for_names_is_left_but_all_are_not_told(broker: Secured) -> None:
    """Version 0 of Metadata asks for all topics without a name: none that is left must not become all."""
    broker.authorizer.allow("DESCRIBE", "TOPIC", "b")
    request = m.MetadataRequest(topics=[m.MetadataRequestTopic(name="a")])
    answer = broker.ask_as("alice", ApiKey.METADATA, request, 0)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", REFUSED)]
    everything = broker.ask_as("alice", ApiKey.METADATA, m.MetadataRequest(topics=[]), 0)
    assert [topic.name for topic in everything.topics] == ["b"]


def test_an_unknown_id_has_no_authorized_operations(broker: Secured) -> None:
    request = m.MetadataRequest(
        topics=[m.MetadataRequestTopic(name=None, topic_id=UUID(int=7))], include_topic_authorized_operations=True
    )
    (topic,) = broker.ask_as("admin", ApiKey.METADATA, request).topics
    assert (topic.error_code, topic.topic_authorized_operations) == (int(ErrorCode.UNKNOWN_TOPIC_ID), -(1 << 31))


# The audit log


def asked_by_alice(broker: Secured) -> list[tuple[Operation, ResourceType, str, bool]]:
    return [entry[1:] for entry in broker.authorizer.asked if entry[0] == "User:alice"]


def test_what_a_request_names_often_is_decided_once(broker: Secured) -> None:
    broker.ask_as("alice", ApiKey.LIST_OFFSETS, listed("a", "a", "b"), 7)
    asked = asked_by_alice(broker)
    assert asked == [
        (Operation.DESCRIBE, ResourceType.TOPIC, "a", True),
        (Operation.DESCRIBE, ResourceType.TOPIC, "b", True),
    ]
    assert broker.authorizer.counts["a"] == 2


def test_lists_and_first_alternatives_log_no_refusal(broker: Secured) -> None:
    coordinators(broker)
    broker.authorizer.asked.clear()
    broker.ask_as("alice", ApiKey.METADATA, m.MetadataRequest(topics=None), 12)
    broker.ask_as("alice", ApiKey.LIST_GROUPS, m.ListGroupsRequest())
    assert asked_by_alice(broker)
    assert not [entry for entry in asked_by_alice(broker) if entry[3]]
    broker.authorizer.asked.clear()
    described = m.DescribeClusterRequest(include_cluster_authorized_operations=True)
    broker.ask_as("alice", ApiKey.DESCRIBE_CLUSTER, described)
    assert asked_by_alice(broker) == [(Operation.DESCRIBE, ResourceType.CLUSTER, "kafka-cluster", True)]
    broker.authorizer.asked.clear()
    broker.ask_as("alice", ApiKey.CREATE_TOPICS, created("n"))
    assert asked_by_alice(broker) == [
        (Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster", False),
        (Operation.CREATE, ResourceType.TOPIC, "n", True),
    ]
