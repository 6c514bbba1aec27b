"""Several brokers in one process: which broker answers what, and how leaders and coordinators move."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import CLUSTER_ID, Harness, batch, produce_request
from tests.broker.virtual_cluster import BROKERS, VirtualCluster

LEADER, FOLLOWER, OTHER = BROKERS
"""The roles of the brokers for partition 0 of topic `t`."""

NONE, NOT_LEADER, NOT_COORDINATOR = ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR
UNKNOWN, NO_REPLICA = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REPLICA_NOT_AVAILABLE


def filled() -> VirtualCluster:
    cluster = VirtualCluster()
    cluster.assign("t", (LEADER, FOLLOWER))
    cluster.write("t", b"a")
    return cluster


def produce() -> m.ProduceRequest:
    return produce_request("t", {0: batch(b"x")})


def fetch(**fields: Any) -> m.FetchRequest:
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return m.FetchRequest(
        topics=[m.FetchRequestFetchTopic(topic="t", partitions=[partition])], max_bytes=1 << 20, **fields
    )


def list_offsets() -> m.ListOffsetsRequest:
    partition = m.ListOffsetsPartition(partition_index=0, timestamp=-1)
    return m.ListOffsetsRequest(topics=[m.ListOffsetsTopic(name="t", partitions=[partition])])


def epoch_end() -> m.OffsetForLeaderEpochRequest:
    asked = m.OffsetForLeaderEpochRequestOffsetForLeaderPartition(partition=0, leader_epoch=0)
    return m.OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[m.OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[asked])]
    )


def delete_records() -> m.DeleteRecordsRequest:
    partition = m.DeleteRecordsPartition(partition_index=0, offset=0)
    return m.DeleteRecordsRequest(topics=[m.DeleteRecordsTopic(name="t", partitions=[partition])], timeout_ms=1000)


def describe_producers() -> m.DescribeProducersRequest:
    return m.DescribeProducersRequest(topics=[m.DescribeProducersRequestTopicRequest(name="t", partition_indexes=[0])])


def write_markers() -> m.WriteTxnMarkersRequest:
    topic = m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name="t", partition_indexes=[0])
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(producer_id=7, producer_epoch=0, topics=[topic])
    return m.WriteTxnMarkersRequest(markers=[marker])


def alter_log_dirs() -> m.AlterReplicaLogDirsRequest:
    topic = m.AlterReplicaLogDirsRequestAlterReplicaLogDirTopic(name="t", partitions=[0])
    return m.AlterReplicaLogDirsRequest(
        dirs=[m.AlterReplicaLogDirsRequestAlterReplicaLogDir(path="memory", topics=[topic])]
    )


def partition_code(response: Any) -> int:
    """The error of the only partition in a response."""
    while not isinstance(code := getattr(response, "error_code", None), int) or hasattr(response, "responses"):
        for name in ("responses", "topics", "partition_responses", "partitions", "results", "markers"):
            if hasattr(response, name):
                (response,) = getattr(response, name)
                break
        else:
            break
    return int(code or 0)


# fmt: off
OF_PARTITIONS: list[tuple[ApiKey, int, Callable[[], Any], tuple[int, int, int]]] = [
    # API, version, request; error at the leader, at a follower, at a broker without a replica
    (ApiKey.PRODUCE, 12, produce, (NONE, NOT_LEADER, NOT_LEADER)),
    (ApiKey.FETCH, 10, fetch, (NONE, NOT_LEADER, NOT_LEADER)),
    (ApiKey.FETCH, 11, fetch, (NONE, NONE, NOT_LEADER)),  # consumers that name a rack may read from a follower (KIP-392)
    (ApiKey.LIST_OFFSETS, 9, list_offsets, (NONE, NOT_LEADER, NOT_LEADER)),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, epoch_end, (NONE, NOT_LEADER, NOT_LEADER)),
    (ApiKey.DELETE_RECORDS, 2, delete_records, (NONE, NOT_LEADER, NOT_LEADER)),
    (ApiKey.DESCRIBE_PRODUCERS, 0, describe_producers, (NONE, NONE, NOT_LEADER)),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 2, alter_log_dirs, (NONE, NONE, NO_REPLICA)),
]
# fmt: on


@pytest.mark.parametrize(
    ("api_key", "version", "make", "codes"), OF_PARTITIONS, ids=[f"{row[0].name}-{row[1]}" for row in OF_PARTITIONS]
)
def test_apis_of_partitions(
    api_key: ApiKey, version: int, make: Callable[[], Any], codes: tuple[int, int, int]
) -> None:
    cluster = filled()
    answers = [cluster.ask(api_key, make(), version=version, at=broker) for broker in BROKERS]
    assert tuple(map(partition_code, answers)) == codes


def test_markers_go_to_the_leader() -> None:
    cluster = filled()
    codes = []
    for broker in BROKERS:
        (marker,) = cluster.ask(ApiKey.WRITE_TXN_MARKERS, write_markers(), at=broker).markers
        codes.append(marker.topics[0].partitions[0].error_code)
    assert codes == [NONE, NOT_LEADER, UNKNOWN]


def test_log_directories_have_the_replicas_of_their_broker() -> None:
    cluster = filled()
    found = []
    for broker in BROKERS:
        (result,) = cluster.ask(ApiKey.DESCRIBE_LOG_DIRS, m.DescribeLogDirsRequest(topics=None), at=broker).results
        found.append([topic.name for topic in result.topics if topic.name == "t"])
    assert found == [["t"], ["t"], []]


GROUP = "g"


def commit() -> m.OffsetCommitRequest:
    partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.OffsetCommitRequestTopic(name="t", partitions=[partition])
    return m.OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])


def join() -> m.JoinGroupRequest:
    protocol = m.JoinGroupRequestProtocol(name="range", metadata=b"")
    return m.JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[protocol],
    )


def sync() -> m.SyncGroupRequest:
    return m.SyncGroupRequest(group_id=GROUP, member_id="m", protocol_type="consumer", protocol_name="range")


def describe_consumers() -> m.ConsumerGroupDescribeRequest:
    return m.ConsumerGroupDescribeRequest(group_ids=[GROUP])


def heartbeat_of_consumer() -> m.ConsumerGroupHeartbeatRequest:
    return m.ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", member_epoch=0, rebalance_timeout_ms=1000, subscribed_topic_names=["t"],
        topic_partitions=(),
    )  # fmt: skip


def heartbeat_of_share_group() -> m.ShareGroupHeartbeatRequest:
    return m.ShareGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=0, subscribed_topic_names=["t"])


def share_offsets() -> m.DescribeShareGroupOffsetsRequest:
    """Of all topics. Named partitions are described by every broker, as in Kafka: the share coordinator is asked."""
    group = m.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
    return m.DescribeShareGroupOffsetsRequest(groups=[group])


def alter_share_offsets() -> m.AlterShareGroupOffsetsRequest:
    partition = m.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=1)
    topic = m.AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=[partition])
    return m.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])


def delete_share_offsets() -> m.DeleteShareGroupOffsetsRequest:
    topic = m.DeleteShareGroupOffsetsRequestTopic(topic_name="t")
    return m.DeleteShareGroupOffsetsRequest(group_id=GROUP, topics=[topic])


def offsets_of_group() -> m.OffsetFetchRequest:
    return m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id=GROUP, topics=None)])


def code_of(response: Any) -> int:
    """The error of the only group in a response."""
    for name in ("groups", "results", "transaction_states", "topics", "partitions"):
        if getattr(response, name, None):
            return code_of(getattr(response, name)[0])
    return int(response.error_code)


# fmt: off
OF_GROUPS: list[tuple[ApiKey, int, Callable[[], Any], int]] = [  # API, version, request, error at the coordinator
    (ApiKey.OFFSET_COMMIT, 9, commit, NONE),
    (ApiKey.OFFSET_FETCH, 9, offsets_of_group, NONE),
    (ApiKey.JOIN_GROUP, 9, join, ErrorCode.MEMBER_ID_REQUIRED),
    (ApiKey.SYNC_GROUP, 5, sync, ErrorCode.UNKNOWN_MEMBER_ID),
    (ApiKey.HEARTBEAT, 4, lambda: m.HeartbeatRequest(group_id=GROUP, member_id="m"), ErrorCode.UNKNOWN_MEMBER_ID),
    (ApiKey.LEAVE_GROUP, 2, lambda: m.LeaveGroupRequest(group_id=GROUP, member_id="m"), ErrorCode.UNKNOWN_MEMBER_ID),
    (ApiKey.DESCRIBE_GROUPS, 6, lambda: m.DescribeGroupsRequest(groups=[GROUP]), ErrorCode.GROUP_ID_NOT_FOUND),
    (ApiKey.DELETE_GROUPS, 2, lambda: m.DeleteGroupsRequest(groups_names=[GROUP]), ErrorCode.GROUP_ID_NOT_FOUND),
    (ApiKey.OFFSET_DELETE, 0, lambda: m.OffsetDeleteRequest(group_id=GROUP), ErrorCode.GROUP_ID_NOT_FOUND),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, heartbeat_of_consumer, NONE),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 1, describe_consumers, ErrorCode.GROUP_ID_NOT_FOUND),
    (ApiKey.SHARE_GROUP_HEARTBEAT, 1, heartbeat_of_share_group, NONE),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, lambda: m.ShareGroupDescribeRequest(group_ids=[GROUP]), ErrorCode.GROUP_ID_NOT_FOUND),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, share_offsets, NONE),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, alter_share_offsets, NONE),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, delete_share_offsets, ErrorCode.GROUP_ID_NOT_FOUND),
]
# fmt: on


@pytest.mark.parametrize(("api_key", "version", "make", "code"), OF_GROUPS, ids=[row[0].name for row in OF_GROUPS])
def test_apis_of_groups(api_key: ApiKey, version: int, make: Callable[[], Any], code: int) -> None:
    cluster = filled()
    cluster.coordinator(GROUP)
    here = cluster.coordinator(GROUP)
    codes = {broker: code_of(cluster.ask(api_key, make(), version=version, at=broker)) for broker in BROKERS}
    assert codes == {broker: code if broker == here else NOT_COORDINATOR for broker in BROKERS}


def init() -> m.InitProducerIdRequest:
    return m.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000, producer_id=-1, producer_epoch=-1)


def add_partitions() -> m.AddPartitionsToTxnRequest:
    topic = m.AddPartitionsToTxnTopic(name="t", partitions=[0])
    return m.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x", v3_and_below_producer_id=1, v3_and_below_topics=[topic]
    )


def add_offsets() -> m.AddOffsetsToTxnRequest:
    return m.AddOffsetsToTxnRequest(transactional_id="x", producer_id=1, group_id=GROUP)


# fmt: off
OF_TRANSACTIONS: list[tuple[ApiKey, int, Callable[[], Any], int]] = [
    (ApiKey.INIT_PRODUCER_ID, 5, init, NONE),
    (ApiKey.ADD_OFFSETS_TO_TXN, 4, add_offsets, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ApiKey.END_TXN, 4, lambda: m.EndTxnRequest(transactional_id="x", producer_id=1), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda: m.DescribeTransactionsRequest(transactional_ids=["x"]),
     ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
]
# fmt: on


@pytest.mark.parametrize(
    ("api_key", "version", "make", "code"), OF_TRANSACTIONS, ids=[row[0].name for row in OF_TRANSACTIONS]
)
def test_apis_of_transactions(api_key: ApiKey, version: int, make: Callable[[], Any], code: int) -> None:
    cluster = filled()
    cluster.coordinator("x", 1)
    here = cluster.coordinator("x", 1)
    codes = {broker: code_of(cluster.ask(api_key, make(), version=version, at=broker)) for broker in BROKERS}
    assert codes == {broker: code if broker == here else NOT_COORDINATOR for broker in BROKERS}


def commit_in_transaction() -> m.TxnOffsetCommitRequest:
    partition = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = m.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
    return m.TxnOffsetCommitRequest(
        transactional_id="x", group_id=GROUP, producer_id=1, generation_id_or_member_epoch=-1, topics=[topic]
    )


def test_offsets_of_transactions_are_taken_by_the_coordinator_of_their_group() -> None:
    cluster = filled()
    cluster.coordinator(GROUP)
    cluster.coordinator("x", 1)
    here = cluster.coordinator(GROUP)
    codes = {
        broker: code_of(cluster.ask(ApiKey.TXN_OFFSET_COMMIT, commit_in_transaction(), version=4, at=broker))
        for broker in BROKERS
    }
    assert all((code == NOT_COORDINATOR) == (broker != here) for broker, code in codes.items())


def test_partitions_are_added_by_the_coordinator_of_their_transaction() -> None:
    cluster = filled()
    cluster.coordinator("x", 1)
    here = cluster.coordinator("x", 1)
    codes = {}
    for broker in BROKERS:
        response = cluster.ask(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions(), version=3, at=broker)
        (result,) = response.results_by_topic_v3_and_below[0].results_by_partition
        codes[broker] = result.partition_error_code
    expected = dict.fromkeys(BROKERS, NOT_COORDINATOR) | {here: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert codes == expected


LOCAL = {
    *(api_key for api_key, *_ in (*OF_PARTITIONS, *OF_GROUPS, *OF_TRANSACTIONS)),
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.WRITE_TXN_MARKERS,
}
"""APIs whose answer depends on the broker. Each has a test here."""


def test_every_other_api_has_the_same_answer_at_every_broker() -> None:
    cluster = filled()
    served = [set(cluster.broker.apis[broker].handlers) for broker in BROKERS]
    assert served[0] == served[1] == served[2]
    for api_key in sorted(served[0] - LOCAL - {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS}):  # each client gets another id
        request = getattr(m, f"{api_key.api_name}Request")()
        answers = [cluster.ask(api_key, request, at=broker) for broker in BROKERS]
        if api_key in (ApiKey.METADATA, ApiKey.DESCRIBE_CLUSTER):
            answers = [answer.brokers for answer in answers]
        assert answers[0] == answers[1] == answers[2], api_key


def test_a_broker_knows_which_of_them_a_client_expects() -> None:
    cluster = VirtualCluster(release="4.4.0")
    request = m.ApiVersionsRequest(
        client_software_name="a", client_software_version="1", cluster_id=CLUSTER_ID, node_id=2
    )
    for broker in BROKERS:
        answer = cluster.ask(ApiKey.API_VERSIONS, request, version=5, at=broker)
        assert answer.error_code == (ErrorCode.NONE if broker == 2 else ErrorCode.REBOOTSTRAP_REQUIRED)


def test_a_producer_without_transactions_gets_its_id_of_any_broker() -> None:
    cluster = VirtualCluster()
    request = m.InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
    answers = [cluster.ask(ApiKey.INIT_PRODUCER_ID, request, at=broker) for broker in BROKERS]
    assert len({answer.producer_id for answer in answers}) == len(BROKERS)


def test_groups_are_listed_by_their_coordinators() -> None:
    cluster = filled()
    groups = [f"g{number}" for number in range(12)]
    for group in groups:
        cluster.coordinator(group)
        here = cluster.coordinator(group)
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=[m.OffsetCommitRequestTopic(name="t", partitions=[partition])],
        )
        assert code_of(cluster.ask(ApiKey.OFFSET_COMMIT, request, version=9, at=here)) == 0
    listed = [
        {found.group_id for found in cluster.ask(ApiKey.LIST_GROUPS, m.ListGroupsRequest(), at=broker).groups}
        for broker in BROKERS
    ]
    assert sorted(group for found in listed for group in found) == sorted(groups)
    assert all(listed), "coordinators are spread over the brokers"


def test_any_broker_takes_changes_of_topics_and_shows_the_same_cluster() -> None:
    cluster = VirtualCluster()
    for broker in BROKERS:
        wanted = m.CreateTopicsRequestCreatableTopic(name=f"t{broker}", num_partitions=3, replication_factor=3)
        request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
        (created,) = cluster.ask(ApiKey.CREATE_TOPICS, request, at=broker).topics
        assert (created.error_code, created.replication_factor) == (0, 3)
    seen = [cluster.ask(ApiKey.METADATA, m.MetadataRequest(topics=None), at=broker) for broker in BROKERS]
    assert seen[0].topics == seen[1].topics == seen[2].topics
    assert [(broker.node_id, broker.port) for broker in seen[0].brokers] == [(1, 9092), (2, 9093), (3, 9094)]
    leaders = [partition.leader_id for topic in seen[0].topics for partition in topic.partitions]
    assert sorted(leaders) == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert [answer.controller_id for answer in seen] == list(BROKERS)


def test_a_refused_client_is_told_the_leader() -> None:
    """KIP-951."""
    cluster = filled()
    response = cluster.ask(ApiKey.PRODUCE, produce(), version=12, at=OTHER)
    (answer,) = response.responses[0].partition_responses
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (LEADER, 0)
    assert [(each.node_id, each.port) for each in response.node_endpoints] == [(LEADER, 9092)]
    topic_id = cluster.broker.catalog.topic("t").topic_id  # type: ignore[union-attr]
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = m.FetchRequest(topics=[m.FetchRequestFetchTopic(topic_id=topic_id, partitions=[partition])])
    fetched = cluster.ask(ApiKey.FETCH, request, version=16, at=OTHER)
    (data,) = fetched.responses[0].partitions
    assert (data.error_code, data.current_leader.leader_id) == (NOT_LEADER, LEADER)
    assert [each.node_id for each in fetched.node_endpoints] == [LEADER]


RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.mark.parametrize(
    ("rack", "version", "preferred"),
    [
        ("b", 11, 2),
        ("b", 10, -1),
        ("a", 11, -1),
        ("c", 11, -1),
        ("", 11, -1),
    ],  # broker 3 is in rack c, without a replica
)
def test_the_leader_sends_consumers_to_the_replica_in_their_rack(rack: str, version: int, preferred: int) -> None:
    cluster = VirtualCluster(racks=("a", "b", "c"), replica_selector_class=RACK_AWARE)
    cluster.assign("t", (LEADER, FOLLOWER))
    cluster.write("t", b"a")
    response = cluster.ask(ApiKey.FETCH, fetch(rack_id=rack, min_bytes=1, max_wait_ms=500), version=version)
    (data,) = response.responses[0].partitions
    assert (data.error_code, data.preferred_read_replica) == (0, preferred)
    assert bool(data.records) == (preferred < 0)
    near = cluster.ask(ApiKey.FETCH, fetch(rack_id=rack), version=11, at=FOLLOWER).responses[0].partitions[0]
    assert near.records
    assert near.preferred_read_replica == -1


def test_without_a_replica_selector_the_leader_answers() -> None:
    cluster = VirtualCluster(racks=("a", "b", "c"))
    cluster.assign("t", (LEADER, FOLLOWER))
    cluster.write("t", b"a")
    (data,) = cluster.ask(ApiKey.FETCH, fetch(rack_id="b"), version=11).responses[0].partitions
    assert (data.preferred_read_replica, bool(data.records)) == (-1, True)


def test_acks_of_all_need_the_minimum_of_in_sync_replicas() -> None:
    cluster = VirtualCluster()
    cluster.assign("t", (1, 2, 3), min_insync_replicas="2")
    cluster.stop(2)
    assert cluster.produce("t", {0: batch(b"a")})[0].error_code == 0
    cluster.stop(3)
    assert cluster.produce("t", {0: batch(b"b")})[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert cluster.produce("t", {0: batch(b"c")}, acks=1)[0].error_code == 0
    cluster.start(3)
    assert cluster.produce("t", {0: batch(b"d")})[0].error_code == 0


def test_a_fetch_that_waits_at_a_leader_that_loses_the_partition_is_answered() -> None:
    cluster = filled()
    partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    topics = [m.FetchRequestFetchTopic(topic="t", partitions=[partition])]
    request = m.FetchRequest(topics=topics, max_bytes=1 << 20, min_bytes=1, max_wait_ms=60_000)
    old = cluster.begin(ApiKey.FETCH, request, version=10)
    cluster.node.settle()
    assert old == []
    cluster.stop(LEADER)
    assert [data.error_code for answer in old for data in answer.responses[0].partitions] == [NOT_LEADER]


def test_a_join_that_waits_at_a_coordinator_that_moves_is_answered() -> None:
    cluster = filled()
    cluster.coordinator(GROUP)
    here = cluster.coordinator(GROUP)
    joined = cluster.begin(ApiKey.JOIN_GROUP, join(), version=3, at=here)
    cluster.node.advance(1)
    waiting = cluster.begin(ApiKey.JOIN_GROUP, join(), version=3, at=here)
    cluster.node.settle()
    assert ([answer.error_code for answer in joined], waiting) == ([0], [])
    cluster.stop(here)
    assert [answer.error_code for answer in waiting] == [NOT_COORDINATOR]
    there = cluster.coordinator(GROUP)
    assert there not in (here, -1)
    beat = m.HeartbeatRequest(group_id=GROUP, member_id=joined[0].member_id, generation_id=joined[0].generation_id)
    code = cluster.ask(ApiKey.HEARTBEAT, beat, at=there).error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID, "the first generation was not synchronised, so it is in no log"


def test_offsets_and_producer_ids_move_with_their_coordinators() -> None:
    cluster = filled()
    cluster.coordinator(GROUP)
    cluster.coordinator("x", 1)
    assert code_of(cluster.ask(ApiKey.OFFSET_COMMIT, commit(), version=9, at=cluster.coordinator(GROUP))) == 0
    made = cluster.ask(ApiKey.INIT_PRODUCER_ID, init(), at=cluster.coordinator("x", 1))
    for broker in BROKERS:
        cluster.stop(broker)
        (group,) = cluster.ask(ApiKey.OFFSET_FETCH, offsets_of_group(), version=9, at=cluster.coordinator(GROUP)).groups
        assert group.topics[0].partitions[0].committed_offset == 1
        again = cluster.ask(ApiKey.INIT_PRODUCER_ID, init(), at=cluster.coordinator("x", 1))
        assert (again.error_code, again.producer_id) == (0, made.producer_id)
        cluster.start(broker)


def test_the_epochs_of_all_partitions_rise_with_each_start() -> None:
    cluster = filled()
    cluster.stop(LEADER)
    assert (cluster.state("t").leader_id, cluster.state("t").leader_epoch) == (FOLLOWER, 1)
    VirtualCluster(store=cluster.store, node=cluster.node)
    again = VirtualCluster(store=cluster.store, node=cluster.node)
    state = again.state("t")
    assert (state.leader_id, state.leader_epoch) == (FOLLOWER, 1 + 2 * 2)
    assert set(state.isr_nodes) == {LEADER, FOLLOWER}, "all brokers run after a start"
    (answer,) = again.ask(ApiKey.PRODUCE, produce(), version=12, at=FOLLOWER).responses[0].partition_responses
    assert answer.error_code == 0
    end = again.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, epoch_end(), at=FOLLOWER).topics[0].partitions[0]
    assert (end.leader_epoch, end.end_offset) == (0, 1)


def test_partitions_without_a_running_replica_have_no_leader() -> None:
    cluster = VirtualCluster()
    cluster.assign("t", (2,))
    cluster.stop(2)
    state = cluster.state("t")
    assert (state.error_code, state.leader_id, state.leader_epoch) == (ErrorCode.LEADER_NOT_AVAILABLE, -1, 1)
    assert (state.isr_nodes, state.offline_replicas) == ((), (2,))
    request = m.DescribeTopicPartitionsRequest(
        topics=[m.DescribeTopicPartitionsRequestTopicRequest(name="t")], response_partition_limit=10
    )
    (described,) = cluster.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, request).topics[0].partitions
    assert (described.leader_id, described.eligible_leader_replicas, described.last_known_elr) == (-1, (2,), (2,))
    cluster.start(2)
    state = cluster.state("t")
    assert (state.leader_id, state.leader_epoch, state.isr_nodes) == (2, 2, (2,))


def test_a_large_topic_moves_in_steps_and_keeps_what_is_changed_meanwhile() -> None:
    cluster = VirtualCluster()
    wanted = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1_500, replication_factor=3)
    cluster.ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
    codes: list[ErrorCode] = []
    steps = cluster.broker.replication.fence(1, codes.append)
    next(steps)
    cluster.node.settle()
    config = m.IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", config_operation=0, value="1")
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=2, resource_name="t", configs=[config]
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    assert cluster.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, at=2).responses[0].error_code == 0
    for _ in steps:
        cluster.node.settle()
    cluster.node.settle()
    topic = cluster.broker.catalog.topic("t")
    assert topic is not None
    assert (codes, topic.configs) == ([NONE], {"retention.ms": "1"})
    assert {(state.replicas[0] == 1, state.leader_epoch, 1 in state.isr) for state in topic.partitions} == {
        (True, 1, False),
        (False, 0, False),
    }


def test_fewer_brokers_lead_what_they_have_replicas_of() -> None:
    """A data directory of three brokers is started with one."""
    cluster = VirtualCluster()
    cluster.assign("t", (2, 1, 3), (2, 3))
    cluster.ask(ApiKey.PRODUCE, produce(), version=12, at=2)
    alone = Harness(store=cluster.store, node=cluster.node)
    alone.node.settle()
    (topic,) = alone.ask(ApiKey.METADATA, m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")])).topics
    assert [(one.leader_id, one.isr_nodes) for one in topic.partitions] == [(1, (1,)), (-1, ())]
    assert [one.offline_replicas for one in topic.partitions] == [(2, 3), (2, 3)]
    assert alone.produce("t", {0: batch(b"b")})[0].error_code == 0
    assert alone.produce("t", {1: batch(b"b")})[0].error_code == NOT_LEADER


def test_a_stopped_broker_is_shown_as_fenced() -> None:
    cluster = VirtualCluster()
    cluster.stop(2)
    request = m.DescribeClusterRequest(endpoint_type=1, include_fenced_brokers=True)
    brokers = cluster.ask(ApiKey.DESCRIBE_CLUSTER, request).brokers
    assert [(broker.broker_id, broker.is_fenced) for broker in brokers] == [(1, False), (2, True), (3, False)]
    request = m.DescribeClusterRequest(endpoint_type=1)
    assert [broker.broker_id for broker in cluster.ask(ApiKey.DESCRIBE_CLUSTER, request).brokers] == [1, 3]
    code = cluster.ask(ApiKey.UNREGISTER_BROKER, m.UnregisterBrokerRequest(broker_id=2)).error_code
    codes = [cluster.ask(ApiKey.UNREGISTER_BROKER, m.UnregisterBrokerRequest(broker_id=2)).error_code, code]
    assert codes == [ErrorCode.BROKER_ID_NOT_REGISTERED, NONE]


def test_a_controller_that_is_not_active_may_be_unregistered() -> None:
    cluster = VirtualCluster(release="4.4.0")

    def codes() -> list[int]:
        requests = [m.UnregisterControllerRequest(controller_id=broker) for broker in BROKERS]
        return [cluster.ask(ApiKey.UNREGISTER_CONTROLLER, request, at=3).error_code for request in requests]

    assert codes() == [ErrorCode.INVALID_REQUEST, NONE, NONE]
    cluster.stop(1)
    assert codes() == [NONE, ErrorCode.INVALID_REQUEST, NONE]


def elect(cluster: VirtualCluster, election_type: int = 0) -> list[int]:
    topics = [m.ElectLeadersRequestTopicPartitions(topic="t", partitions=[0])]
    request = m.ElectLeadersRequest(election_type=election_type, topic_partitions=topics, timeout_ms=1000)
    response = cluster.ask(ApiKey.ELECT_LEADERS, request, at=cluster.running[0])
    return [result.error_code for topic in response.replica_election_results for result in topic.partition_result]


def test_a_broker_that_comes_back_leads_after_a_preferred_election() -> None:
    cluster = VirtualCluster()
    cluster.assign("t", (1, 2))
    cluster.stop(1)
    assert elect(cluster) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert elect(cluster, 1) == [ErrorCode.ELECTION_NOT_NEEDED]
    cluster.start(1)
    assert (cluster.state("t").leader_id, cluster.state("t").leader_epoch) == (2, 1)
    assert elect(cluster) == [NONE]
    assert (cluster.state("t").leader_id, cluster.state("t").leader_epoch) == (1, 2)
    assert elect(cluster) == [ErrorCode.ELECTION_NOT_NEEDED]


def reassign(cluster: VirtualCluster, replicas: tuple[int, ...] | None, **fields: Any) -> int:
    partition = m.AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=replicas)
    topic = m.AlterPartitionReassignmentsRequestReassignableTopic(name="t", partitions=[partition])
    request = m.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1000, **fields)
    response = cluster.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, request, at=cluster.running[0])
    return int(response.responses[0].partitions[0].error_code)


def ongoing(cluster: VirtualCluster) -> list[tuple[Any, ...]]:
    request = m.ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000)
    topics = cluster.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request, at=cluster.running[0]).topics
    return [(one.replicas, one.adding_replicas, one.removing_replicas) for topic in topics for one in topic.partitions]


def test_a_partition_moves_to_other_brokers_with_its_records() -> None:
    cluster = filled()
    assert reassign(cluster, (3,)) == NONE
    state = cluster.state("t")
    assert (state.leader_id, state.replica_nodes, state.leader_epoch) == (3, (3,), 1)
    (data,) = cluster.ask(ApiKey.FETCH, fetch(), version=11, at=3).responses[0].partitions
    assert data.records
    assert ongoing(cluster) == []


def test_a_reassignment_to_a_stopped_broker_goes_on_when_it_starts() -> None:
    cluster = filled()
    cluster.stop(3)
    assert reassign(cluster, (3,)) == NONE
    assert ongoing(cluster) == [((3, 1, 2), (3,), (1, 2))]
    assert reassign(cluster, None) == NONE
    assert (cluster.state("t").replica_nodes, ongoing(cluster)) == ((1, 2), [])
    assert reassign(cluster, None) == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert reassign(cluster, (3, 1)) == NONE
    cluster.start(3)
    assert (set(cluster.state("t").replica_nodes), ongoing(cluster)) == ({3, 1}, [])


@pytest.mark.parametrize(
    ("replicas", "fields", "code"),
    [
        ((4,), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((), {}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1,), {"allow_replication_factor_change": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ((2, 3), {"allow_replication_factor_change": False}, NONE),
    ],
)
def test_reassignments_are_checked(replicas: tuple[int, ...], fields: dict[str, Any], code: int) -> None:
    assert reassign(filled(), replicas, **fields) == code


def test_new_partitions_of_a_topic_are_replicated_as_its_first_one() -> None:
    cluster = filled()
    request = m.CreatePartitionsRequest(
        topics=[m.CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=1000
    )
    assert [result.error_code for result in cluster.ask(ApiKey.CREATE_PARTITIONS, request).results] == [0]
    topic = cluster.broker.catalog.topic("t")
    assert topic is not None
    assert [len(state.replicas) for state in topic.partitions] == [2, 2, 2, 2]


def test_internal_topics_are_replicated_to_all_brokers() -> None:
    cluster = VirtualCluster()
    cluster.coordinator(GROUP)
    assert len(cluster.state(CONSUMER_OFFSETS).replica_nodes) == 3
