"""
Consumer groups on a broker: configurations that are checked at the start, enabled protocols, configurations of single groups.

Rows with a message were asked of Apache Kafka 4.2.1.
"""

from typing import Any

import pytest

from kohort.broker.features import GROUP_VERSION, Features
from kohort.model.errors import ConfigError, ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.clients import commit
from tests.server.coordinators.test_group_coordinator import Groups

BROKER, GROUP = 4, 32


def join(groups: Groups, member_id: str = "a", **fields: Any) -> m.ConsumerGroupHeartbeatResponse:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id=member_id,
        **{"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": [], **fields},
    )
    answer: m.ConsumerGroupHeartbeatResponse = groups.harness.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    return answer


def beat(groups: Groups, epoch: int) -> m.ConsumerGroupHeartbeatResponse:
    request = m.ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", member_epoch=epoch)
    answer: m.ConsumerGroupHeartbeatResponse = groups.harness.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request)
    return answer


def configure(groups: Groups, kind: int = GROUP, **configs: int) -> ErrorCode:
    entries = [
        m.IncrementalAlterConfigsRequestAlterableConfig(
            name=name.replace("_", "."), config_operation=0, value=str(value)
        )
        for name, value in configs.items()
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name="g" if kind == GROUP else "", configs=entries
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = groups.harness.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    return ErrorCode(answer.error_code)


CONSUMER, SHARE, STREAMS = "group.consumer", "group.share", "group.streams"
# fmt: off
REFUSED = [
    ({"group_coordinator_rebalance_protocols": "consumer"}, "Disabling the 'classic' protocol is not supported."),
    ({"group_coordinator_rebalance_protocols": ""},
     "Configuration 'group.coordinator.rebalance.protocols' must not be empty. Valid values include: [consumer, classic, "),
    ({"group_consumer_session_timeout_ms": "1000"},
     f"{CONSUMER}.session.timeout.ms must be greater than or equal to {CONSUMER}.min.session.timeout.ms"),
    ({"group_consumer_session_timeout_ms": "60001"},
     f"{CONSUMER}.session.timeout.ms must be less than or equal to {CONSUMER}.max.session.timeout.ms"),
    ({"group_consumer_max_session_timeout_ms": "1000"},
     f"{CONSUMER}.max.session.timeout.ms must be greater than or equal to {CONSUMER}.min.session.timeout.ms"),
    ({"group_consumer_heartbeat_interval_ms": "4999"},
     f"{CONSUMER}.heartbeat.interval.ms must be greater than or equal to {CONSUMER}.min.heartbeat.interval.ms"),
    ({"group_consumer_heartbeat_interval_ms": "15001"},
     f"{CONSUMER}.heartbeat.interval.ms must be less than or equal to {CONSUMER}.max.heartbeat.interval.ms"),
    ({"group_consumer_heartbeat_interval_ms": "50000", "group_consumer_max_heartbeat_interval_ms": "60000"},
     f"{CONSUMER}.heartbeat.interval.ms must be less than {CONSUMER}.session.timeout.ms"),
    ({"group_consumer_heartbeat_interval_ms": "45000", "group_consumer_max_heartbeat_interval_ms": "60000"},
     f"{CONSUMER}.heartbeat.interval.ms must be less than {CONSUMER}.session.timeout.ms"),
    ({"group_share_heartbeat_interval_ms": "1000"},
     f"{SHARE}.heartbeat.interval.ms must be greater than or equal to {SHARE}.min.heartbeat.interval.ms"),
    ({"group_streams_num_standby_replicas": "5"},
     f"{STREAMS}.num.standby.replicas must be less than or equal to {STREAMS}.max.standby.replicas"),
]
# fmt: on


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_broker_does_not_start_with_contradictory_defaults(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Groups(**settings)
    assert str(refused.value).startswith(message)


def test_defaults_at_their_limits_are_accepted() -> None:
    groups = Groups(group_consumer_session_timeout_ms="60000", group_consumer_heartbeat_interval_ms="15000").start()
    assert join(groups).heartbeat_interval_ms == 15_000


@pytest.mark.parametrize(
    ("protocols", "level", "is_enabled"),
    [
        ("classic,consumer,streams", 1, True),
        ("consumer,classic", 1, True),
        ("classic", 1, False),
        ("classic,share", 1, False),
        ("classic,consumer", 0, False),
    ],
)
def test_a_disabled_protocol(protocols: str, level: int, is_enabled: bool) -> None:
    features = Features({GROUP_VERSION: level})
    groups = Groups(group_coordinator_rebalance_protocols=protocols, features=features).start()
    expected = ErrorCode.NONE if is_enabled else ErrorCode.UNSUPPORTED_VERSION
    answer = join(groups)
    assert (answer.error_code, answer.error_message) == (expected, None)
    request = m.ConsumerGroupDescribeRequest(group_ids=["g", ""], include_authorized_operations=True)
    described = groups.harness.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups
    assert described[0].error_code == expected
    if not is_enabled:
        # Kafka looks at nothing else: not at the ids, and not at the form of the request.
        assert join(groups, "").error_code == expected
        assert [(group.error_code, group.authorized_operations) for group in described] == [(35, -(1 << 31))] * 2
        shown = groups.harness.ask(
            ApiKey.API_VERSIONS, m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
        )
        assert {68, 69} <= {each.api_key for each in shown.api_keys}
        finalized = {feature.name for feature in shown.finalized_features}
        assert (GROUP_VERSION in finalized) == (level == 1)


def test_without_the_consumer_protocol_offsets_are_committed_as_ever() -> None:
    groups = Groups(group_coordinator_rebalance_protocols="classic").start()
    groups.harness.ask(ApiKey.OFFSET_COMMIT, commit(4), version=9)
    assert groups.committed() == 4


def test_configurations_of_a_group_take_effect_with_the_next_heartbeat() -> None:
    groups = Groups().start()
    assert join(groups).heartbeat_interval_ms == 5_000
    assert (
        configure(groups, consumer_heartbeat_interval_ms=12_000, consumer_session_timeout_ms=60_000) is ErrorCode.NONE
    )
    assert beat(groups, 2).heartbeat_interval_ms == 12_000
    groups.harness.node.advance(59_999)
    assert beat(groups, 2).error_code == ErrorCode.NONE
    assert configure(groups, consumer_session_timeout_ms=45_000) is ErrorCode.NONE
    # The running session ends as it was armed; the next one is shorter.
    groups.harness.node.advance(59_999)
    assert beat(groups, 2).error_code == ErrorCode.NONE
    groups.harness.node.advance(45_000)
    assert beat(groups, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def assignment_epoch(groups: Groups) -> int:
    request = m.ConsumerGroupDescribeRequest(group_ids=["g"])
    epoch: int = groups.harness.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, request).groups[0].assignment_epoch
    return epoch


def test_the_assignment_interval_is_that_of_the_group_or_of_the_broker_at_this_moment() -> None:
    groups = Groups(release="4.4.0", group_consumer_assignment_interval_ms="15000").start()
    join(groups)
    join(groups, "b")
    groups.harness.node.advance(4_000)
    beat(groups, 2)
    assert assignment_epoch(groups) == 2
    assert configure(groups, BROKER, group_consumer_assignment_interval_ms=4_000) is ErrorCode.NONE
    beat(groups, 2)
    assert assignment_epoch(groups) == 3
    join(groups, "c")
    assert assignment_epoch(groups) == 3
    assert configure(groups, consumer_assignment_interval_ms=0) is ErrorCode.NONE
    join(groups, "d")
    assert assignment_epoch(groups) == 5


@pytest.mark.parametrize(
    "configs",
    [
        {"consumer_heartbeat_interval_ms": 4_999},
        {"consumer_heartbeat_interval_ms": 15_001},
        {"consumer_session_timeout_ms": 44_999},
        {"consumer_session_timeout_ms": 60_001},
    ],
)
def test_a_configuration_outside_of_the_limits_has_no_effect(configs: dict[str, int]) -> None:
    groups = Groups().start()
    assert configure(groups, **configs) is ErrorCode.INVALID_CONFIG
    assert join(groups).heartbeat_interval_ms == 5_000
