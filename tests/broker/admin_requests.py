"""One request of each API of administrators that no recorded conversation has."""

from typing import Any
from uuid import UUID

from kohort.wire import messages as m

TOPIC_ID = UUID("11111111-1111-4111-8111-111111111111")


def admin_requests() -> list[Any]:
    return [*settings_requests(), *security_requests(), *absent_requests(), *share_state_requests()]


def settings_requests() -> list[Any]:
    update = m.UpdateFeaturesRequestFeatureUpdateKey(feature="transaction.version", max_version_level=1, upgrade_type=2)
    quota = m.AlterClientQuotasRequestEntryData(
        entity=[m.AlterClientQuotasRequestEntityData(entity_type="user", entity_name="a")],
        ops=[m.AlterClientQuotasRequestOpData(key="request_percentage", value=0.5, remove=False)],
    )
    credential = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
        name="a", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
    )
    deletion = m.AlterUserScramCredentialsRequestScramCredentialDeletion(name="b", mechanism=2)
    listener = m.AddRaftVoterRequestListener(name="CONTROLLER", host="h", port=1)
    return [
        m.UpdateFeaturesRequest(timeout_ms=100, feature_updates=[update]),
        m.AlterClientQuotasRequest(entries=[quota], validate_only=False),
        m.AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[credential]),
        m.AddRaftVoterRequest(
            cluster_id=None, timeout_ms=1, voter_id=2, voter_directory_id=TOPIC_ID, listeners=[listener]
        ),
        m.RemoveRaftVoterRequest(cluster_id=None, voter_id=2, voter_directory_id=TOPIC_ID),
        m.GetTelemetrySubscriptionsRequest(client_instance_id=TOPIC_ID),
        m.PushTelemetryRequest(
            client_instance_id=TOPIC_ID, subscription_id=1, terminating=True, compression_type=1, metrics=b"x"
        ),
    ]


def security_requests() -> list[Any]:
    renewer = m.CreateDelegationTokenRequestCreatableRenewers(principal_type="User", principal_name="r")
    owner = m.DescribeDelegationTokenOwner(principal_type="User", principal_name="o")
    return [
        m.SaslHandshakeRequest(mechanism="PLAIN"),
        m.SaslAuthenticateRequest(auth_bytes=b"x"),
        m.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="o", renewers=[renewer], max_lifetime_ms=1
        ),
        m.RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=1),
        m.ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=1),
        m.DescribeDelegationTokenRequest(owners=[owner]),
    ]


def absent_requests() -> list[Any]:
    fetched = m.ShareFetchRequestFetchTopic(
        topic_id=TOPIC_ID, partitions=[m.ShareFetchRequestFetchPartition(partition_index=0)]
    )
    acknowledged = m.ShareAcknowledgeRequestAcknowledgeTopic(
        topic_id=TOPIC_ID, partitions=[m.ShareAcknowledgeRequestAcknowledgePartition(partition_index=0)]
    )
    described = m.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])
    altered = m.AlterShareGroupOffsetsRequestTopic(
        topic_name="t", partitions=[m.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
    )
    return [
        m.ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=["t"]),
        m.ShareGroupDescribeRequest(group_ids=["g"]),
        m.ShareFetchRequest(group_id="g", member_id="m", topics=[fetched]),
        m.ShareAcknowledgeRequest(group_id="g", member_id="m", topics=[acknowledged]),
        m.StreamsGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
        m.StreamsGroupDescribeRequest(group_ids=["g"]),
        m.DescribeShareGroupOffsetsRequest(
            groups=[m.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[described])]
        ),
        m.AlterShareGroupOffsetsRequest(group_id="g", topics=[altered]),
        m.DeleteShareGroupOffsetsRequest(group_id="g", topics=[m.DeleteShareGroupOffsetsRequestTopic(topic_name="t")]),
    ]


def share_state_requests() -> list[Any]:
    """The five APIs of share group state have the same shape."""
    found = []
    for name, topic in (
        ("InitializeShareGroupState", "InitializeStateData"),
        ("ReadShareGroupState", "ReadStateData"),
        ("WriteShareGroupState", "WriteStateData"),
        ("DeleteShareGroupState", "DeleteStateData"),
        ("ReadShareGroupStateSummary", "ReadStateSummaryData"),
    ):
        partition = getattr(m, f"{name}RequestPartitionData")(partition=0)
        topics = [getattr(m, f"{name}Request{topic}")(topic_id=TOPIC_ID, partitions=[partition])]
        found.append(getattr(m, f"{name}Request")(group_id="g", topics=topics))
    return found
