"""Whatever a client sends, if it can be read at all, is answered exactly once and never raises."""

from collections.abc import Generator
from functools import cache
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.apis.api_table import served_versions
from kohort.broker.ports import NoResponse
from kohort.model.errors import WireError
from kohort.model.principals import Principal
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, RELEASES, ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from tests.broker.access.scanning_authorizer import Rule, ScanningAuthorizer
from tests.broker.admin_requests import admin_requests
from tests.broker.harness import Asker, Harness, batch, produce_request, through_wire
from tests.broker.recorded import WIRE, frames
from tests.conftest import LONG, examples

WEEK_MS = 7 * 24 * 3_600_000
NEWEST = RELEASES[-1]
ADMIN = Principal("admin")
QUIET: dict[str, Any] = {
    "log_cleaner_enable": "false",
    "log_retention_check_interval_ms": str(WEEK_MS // 14),
    "share_coordinator_state_topic_num_partitions": "1",
    "share_coordinator_state_topic_prune_interval_ms": str(WEEK_MS // 14),
    "share_coordinator_cold_partition_snapshot_interval_ms": str(WEEK_MS // 14),
}
"""A broker looks at idle logs every 15 seconds to 5 minutes, and a week has 2016 times 5 minutes."""

Change = tuple[int, int]
"""Where a byte is changed, in thousandths of the frame, and to what."""


@cache
def samples() -> list[bytes]:
    """Requests of every API that is served: some recorded, some our own."""
    harness = Harness(release=NEWEST)
    harness.host_shares()
    served = harness.broker.handlers
    found: dict[tuple[ApiKey, int], bytes] = {}
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        for frame in frames(path):
            if frame["dir"] == "request" and frame["api_key"] in served:
                found.setdefault((API_KEYS[frame["api_key"]], frame["api_version"]), bytes.fromhex(frame["hex"]))
    for request in own_requests():
        api_key = next(key for key in served if type(request).__name__ == f"{key.api_name}Request")
        oldest, newest = served_versions(NEWEST)[api_key]
        for version in range(oldest, newest + 1):
            found[api_key, version] = request_encoder(api_key, version)(1, "c", request)[4:]
    assert {key for key, _ in found} == set(served)
    return [found[place] for place in sorted(found)]


def own_requests() -> list[Any]:
    topic = m.CreateTopicsRequestCreatableTopic(
        name="new", num_partitions=2, replication_factor=1,
        assignments=[m.CreateTopicsRequestCreatableReplicaAssignment(partition_index=0, broker_ids=[1])],
        configs=[m.CreateTopicsRequestCreatableTopicConfig(name="cleanup.policy", value="compact")],
    )  # fmt: skip
    change = m.IncrementalAlterConfigsRequestAlterableConfig(name="cleanup.policy", config_operation=2, value="compact")
    setting = m.AlterConfigsRequestAlterableConfig(name="retention.ms", value="5")
    asked = m.FetchRequestFetchPartition(partition=0, fetch_offset=1, partition_max_bytes=1000, current_leader_epoch=0)
    resource: dict[str, Any] = {"resource_type": 2, "resource_name": "t"}
    epoch = m.OffsetForLeaderEpochRequestOffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    acl: dict[str, Any] = {"principal": "User:a", "host": "*", "operation": 3, "permission_type": 3}
    kind: dict[str, Any] = {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}
    return [
        m.ListConfigResourcesRequest(resource_types=[2, 32]),
        m.DescribeAclsRequest(**kind, resource_name_filter="t", principal_filter=None, host_filter=None),
        m.CreateAclsRequest(
            creations=[
                m.CreateAclsRequestAclCreation(resource_type=2, resource_name="t", resource_pattern_type=3, **acl)
            ]
        ),
        m.DeleteAclsRequest(
            filters=[m.DeleteAclsFilter(**kind, resource_name_filter="t", principal_filter=None, host_filter=None)]
        ),
        m.DescribeUserScramCredentialsRequest(users=[m.DescribeUserScramCredentialsRequestUserName(name="a")]),
        m.DescribeClientQuotasRequest(
            components=[m.DescribeClientQuotasRequestComponentData(entity_type="user", match_type=0, match="a")],
            strict=True,
        ),
        m.DescribeLogDirsRequest(topics=[m.DescribeLogDirsRequestDescribableLogDirTopic(topic="t", partitions=[0, 9])]),
        m.AlterReplicaLogDirsRequest(
            dirs=[
                m.AlterReplicaLogDirsRequestAlterReplicaLogDir(
                    path="/a", topics=[m.AlterReplicaLogDirsRequestAlterReplicaLogDirTopic(name="t", partitions=[0])]
                )
            ]
        ),
        m.AlterPartitionReassignmentsRequest(
            topics=[
                m.AlterPartitionReassignmentsRequestReassignableTopic(
                    name="t",
                    partitions=[
                        m.AlterPartitionReassignmentsRequestReassignablePartition(partition_index=0, replicas=[1])
                    ],
                )
            ]
        ),
        m.ListPartitionReassignmentsRequest(
            topics=[m.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0])]
        ),
        m.ElectLeadersRequest(
            election_type=0,
            topic_partitions=[m.ElectLeadersRequestTopicPartitions(topic="t", partitions=[0, 9])],
            timeout_ms=100,
        ),
        m.DescribeQuorumRequest(
            topics=[
                m.DescribeQuorumRequestTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[m.DescribeQuorumRequestPartitionData(partition_index=0)],
                )
            ]
        ),
        *admin_requests(),
        m.UnregisterBrokerRequest(broker_id=1),
        m.UnregisterControllerRequest(controller_id=1),
        m.StreamsGroupTopologyDescriptionUpdateRequest(group_id="g", member_id="m"),
        m.ApiVersionsRequest(client_software_name="a", client_software_version="1", cluster_id="c", node_id=1),
        produce_request("t", {0: batch(b"x", b"y"), 1: batch(b"z")}),
        m.FetchRequest(topics=[m.FetchRequestFetchTopic(topic="t", partitions=[asked])], max_wait_ms=100, min_bytes=1),
        m.ListOffsetsRequest(
            topics=[m.ListOffsetsTopic(name="t", partitions=[m.ListOffsetsPartition(timestamp=-1)])], replica_id=-1
        ),
        m.OffsetForLeaderEpochRequest(
            topics=[m.OffsetForLeaderEpochRequestOffsetForLeaderTopic(topic="t", partitions=[epoch])]
        ),
        m.CreateTopicsRequest(topics=[topic], timeout_ms=100),
        m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequestDeleteTopicState(name="t")], topic_names=["t"], timeout_ms=9
        ),
        m.CreatePartitionsRequest(
            topics=[m.CreatePartitionsTopic(name="t", count=4, assignments=None)], timeout_ms=100
        ),
        m.DeleteRecordsRequest(
            topics=[m.DeleteRecordsTopic(name="t", partitions=[m.DeleteRecordsPartition(partition_index=0, offset=1)])],
            timeout_ms=100,
        ),
        m.WriteTxnMarkersRequest(
            markers=[
                m.WriteTxnMarkersRequestWritableTxnMarker(
                    producer_id=1,
                    producer_epoch=0,
                    transaction_result=True,
                    topics=[m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name="t", partition_indexes=[0, 9])],
                )
            ]
        ),
        m.DescribeConfigsRequest(resources=[m.DescribeConfigsResource(**resource, configuration_keys=["a", "b"])]),
        m.IncrementalAlterConfigsRequest(
            resources=[m.IncrementalAlterConfigsRequestAlterConfigsResource(**resource, configs=[change])]
        ),
        m.AlterConfigsRequest(resources=[m.AlterConfigsRequestAlterConfigsResource(**resource, configs=[setting])]),
        m.DescribeClusterRequest(endpoint_type=1),
        m.DescribeTopicPartitionsRequest(
            topics=[m.DescribeTopicPartitionsRequestTopicRequest(name="t")],
            response_partition_limit=1,
            cursor=m.DescribeTopicPartitionsRequestCursor(topic_name="t", partition_index=1),
        ),
        m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t"), m.MetadataRequestTopic(name="u")]),
    ]


RULES = st.lists(
    st.builds(
        Rule,
        st.sampled_from(("ALLOW", "DENY")),
        st.sampled_from(("ALL", *(operation.name for operation in Operation))),
        st.sampled_from([resource_type.name for resource_type in ResourceType]),
        st.sampled_from(("t", "u", "a", "*", "kafka-cluster")),
        st.sampled_from(("LITERAL", "PREFIXED")),
        st.just("User:*"),
        st.just("*"),
    ),
    max_size=8,
)


@given(
    st.data(),
    st.lists(st.tuples(st.integers(0, 999), st.integers(0, 255)), max_size=4),
    st.none() | RULES,
)
@settings(max_examples=20_000 if LONG else examples(500), deadline=None)
def test_any_request_is_answered_once(data: st.DataObject, changes: list[Change], rules: list[Rule] | None) -> None:
    """As without an authorizer, so with any rules of one."""
    frame = bytearray(data.draw(st.sampled_from(samples())))
    for where, value in changes:
        frame[4 + where * (len(frame) - 4) // 1000] = value
    try:
        api_key, version, _, client_id, body = read_request_header(bytes(frame))
        request = request_reader(api_key, version)(bytes(frame), body)
    except WireError:
        return
    authorizer = None if rules is None else ScanningAuthorizer(super_users=[f"User:{ADMIN.name}"])
    harness = Harness(release=NEWEST, authorizer=authorizer, **QUIET)
    harness.user = ADMIN
    harness.host_shares()
    harness.create("t", 2)
    if authorizer is not None:
        authorizer.rules = rules or []
    answers: list[Any] = []
    response = harness.broker.handlers[API_KEYS[api_key]](
        request, Asker(version, client_id, later=harness.node.call_soon), answers.append
    )
    if isinstance(response, Generator):
        response = drain(response)
    if response is not None:
        answers.append(response)
    harness.node.advance(WEEK_MS)
    waits = api_key == ApiKey.FETCH and request.max_wait_ms > WEEK_MS
    assert len(answers) == 1 or (waits and not answers)
    for answer in answers:
        assert isinstance(answer, NoResponse) or through_wire(API_KEYS[api_key], version, answer) is not None
