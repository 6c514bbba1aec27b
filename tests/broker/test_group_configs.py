"""
Configurations of groups, resource type GROUP. Rows with a message were asked of Apache Kafka 4.2.1.

Source: Kafka GroupConfig, GroupConfigManager; ListConfigResources (KIP-1142).
"""

from pathlib import Path

import pytest

from kohort.broker.configs.definitions import keys_of
from kohort.model.errors import ErrorCode
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from tests.broker.harness import Harness, reopened

GROUP, TOPIC, BROKER, LOGGER, METRICS = 32, 2, 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, BEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

Change = tuple[str, int, str | None]
RESET_VALUES = "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."


def alter(harness: Harness, *changes: Change, name: str = "g", validate_only: bool = False) -> tuple[int, str | None]:
    configs = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=GROUP, resource_name=name, configs=configs
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = harness.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses
    return answer.error_code, answer.error_message


def described(
    harness: Harness, name: str = "g"
) -> dict[str, tuple[str | None, int, list[tuple[str, str | None, int]]]]:
    resource = m.DescribeConfigsResource(resource_type=GROUP, resource_name=name, configuration_keys=None)
    request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (answer,) = harness.ask(ApiKey.DESCRIBE_CONFIGS, request).results
    assert answer.error_code == 0
    return {
        entry.name: (entry.value, entry.config_source, [(one.name, one.value, one.source) for one in entry.synonyms])
        for entry in answer.configs
    }


def listed(harness: Harness, *types: int, version: int = 1) -> tuple[int, list[tuple[str, int]]]:
    request = m.ListConfigResourcesRequest(resource_types=types)
    answer = harness.ask(ApiKey.LIST_CONFIG_RESOURCES, request, version=version)
    return answer.error_code, [(each.resource_name, each.resource_type) for each in answer.config_resources]


def _limit(name: str, bound: str, limit: str) -> str:
    return f"{name} must be {'greater' if bound == 'min' else 'less'} than or equal to {limit}"


# fmt: off
ONE_KEY: dict[tuple[str, str], str | None] = {  # the message of INVALID_CONFIG; None when it is set
    (SESSION, "45000"):  None,
    (SESSION, "60000"):  None,
    (SESSION, " 50000 "): None,
    (SESSION, "44999"):  _limit(SESSION, "min", "group.consumer.min.session.timeout.ms"),
    (SESSION, "60001"):  _limit(SESSION, "max", "group.consumer.max.session.timeout.ms"),
    (SESSION, "x"):      f"Invalid value x for configuration {SESSION}: Not a number of type INT",
    (SESSION, "0"):      f"Invalid value 0 for configuration {SESSION}: Value must be at least 1",
    (BEAT, "5000"):      None,
    (BEAT, "15000"):     None,
    (BEAT, "4999"):      _limit(BEAT, "min", "group.consumer.min.heartbeat.interval.ms"),
    (BEAT, "15001"):     _limit(BEAT, "max", "group.consumer.max.heartbeat.interval.ms"),
    ("share.session.timeout.ms", "44999"):
        _limit("share.session.timeout.ms", "min", "group.share.min.session.timeout.ms"),
    ("share.heartbeat.interval.ms", "4999"):
        _limit("share.heartbeat.interval.ms", "min", "group.share.min.heartbeat.interval.ms"),
    ("share.record.lock.duration.ms", "14999"):
        _limit("share.record.lock.duration.ms", "min", "group.share.min.record.lock.duration.ms"),
    ("share.record.lock.duration.ms", "60001"):
        _limit("share.record.lock.duration.ms", "max", "group.share.max.record.lock.duration.ms"),
    ("share.record.lock.duration.ms", "999"):
        "Invalid value 999 for configuration share.record.lock.duration.ms: Value must be at least 1000",
    ("streams.session.timeout.ms", "44999"):
        _limit("streams.session.timeout.ms", "min", "group.streams.min.session.timeout.ms"),
    ("streams.session.timeout.ms", "60001"):
        _limit("streams.session.timeout.ms", "max", "group.streams.max.session.timeout.ms"),
    ("streams.heartbeat.interval.ms", "4999"):
        _limit("streams.heartbeat.interval.ms", "min", "group.streams.min.heartbeat.interval.ms"),
    ("streams.heartbeat.interval.ms", "15001"):
        _limit("streams.heartbeat.interval.ms", "max", "group.streams.max.heartbeat.interval.ms"),
    ("streams.num.standby.replicas", "2"):   None,
    ("streams.num.standby.replicas", "3"):
        _limit("streams.num.standby.replicas", "max", "group.streams.max.standby.replicas"),
    ("streams.num.standby.replicas", "-1"):
        "Invalid value -1 for configuration streams.num.standby.replicas: Value must be at least 0",
    ("streams.initial.rebalance.delay.ms", "-1"):
        "Invalid value -1 for configuration streams.initial.rebalance.delay.ms: Value must be at least 0",
    ("share.isolation.level", "read_committed"): None,
    ("share.isolation.level", "READ_COMMITTED"):
        "Invalid value READ_COMMITTED for configuration share.isolation.level: "
        "String must be one of: read_committed, read_uncommitted",
    ("share.auto.offset.reset", "earliest"):          None,
    ("share.auto.offset.reset", "by_duration:PT1H"):  None,
    ("share.auto.offset.reset", "by_duration:P1DT2.5S"): None,
    **{("share.auto.offset.reset", bad):
        f"Invalid value {bad} for configuration share.auto.offset.reset: "
        f"Invalid value `{bad}` for configuration share.auto.offset.reset. {RESET_VALUES}"
       for bad in ("", "bogus", "by_duration:x", "by_duration:P", "by_duration:PT", "by_duration:-PT1H")},
    ("share.delivery.count.limit", "1"): "Unknown group config name: share.delivery.count.limit",
    ("no.such", "1"):                    "Unknown group config name: no.such",
}
SEVERAL: dict[tuple[Change, ...], tuple[int, str | None]] = {
    ((SESSION, SET, None),):                  (42, f"Null value not supported for : {SESSION}"),
    ((SESSION, SET, None), (BEAT, SET, None)): (42, f"Null value not supported for : {SESSION}, {BEAT}"),
    ((SESSION, SET, "50000"),) * 2:           (42, "Error due to duplicate config keys"),
    ((SESSION, APPEND, "50000"),):            (40, f"Can't APPEND to key {SESSION} because its type is not LIST."),
    ((SESSION, SUBTRACT, "50000"),):          (40, f"Can't SUBTRACT to key {SESSION} because its type is not LIST."),
    ((SESSION, 9, "50000"),):                 (-1, None),
    (("no.such", DELETE, None),):             (0, None),
    (("cleanup.policy", SET, "compact"), ("no.such", SET, "1")): (40, "Unknown group config name: cleanup.policy"),
    ((SESSION, SET, "60001"), (BEAT, SET, "4999")): (40, _limit(BEAT, "min", "group.consumer.min.heartbeat.interval.ms")),
    ((BEAT, SET, "6000"), (SESSION, SET, "50000"), ("share.isolation.level", SET, "read_committed")): (0, None),
    (): (0, None),
}
# fmt: on


@pytest.mark.parametrize("row", ONE_KEY, ids="=".join)
def test_one_key(row: tuple[str, str]) -> None:
    harness, message = Harness(), ONE_KEY[row]
    key, text = row
    assert alter(harness, (key, SET, text)) == ((0, None) if message is None else (ErrorCode.INVALID_CONFIG, message))
    if message is None:
        assert described(harness)[key] == (text.strip(), 8, [(key, text.strip(), 8)])
    else:
        assert listed(harness, GROUP) == (0, [])


@pytest.mark.parametrize("changes", SEVERAL)
def test_several_keys(changes: tuple[Change, ...]) -> None:
    assert alter(Harness(), *changes) == SEVERAL[changes]


def test_a_session_is_longer_than_the_heartbeat_interval_in_force() -> None:
    harness = Harness(
        group_consumer_min_session_timeout_ms="1",
        group_consumer_session_timeout_ms="50000",
        group_consumer_min_heartbeat_interval_ms="1000",
        group_consumer_heartbeat_interval_ms="6000",
    )
    too_short = (40, f"{SESSION} must be greater than {BEAT}")
    assert alter(harness, (SESSION, SET, "6000")) == too_short
    assert alter(harness, (SESSION, SET, "6001")) == (0, None)
    # Short ones must be set together.
    assert alter(harness, (SESSION, SET, "3000"), name="h") == too_short
    assert alter(harness, (SESSION, SET, "3000"), (BEAT, SET, "2999"), name="h") == (0, None)
    assert alter(harness, (BEAT, SET, "3000"), name="h") == too_short


def test_the_group_without_a_name() -> None:
    refused = (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    assert alter(Harness(), (SESSION, SET, "50000"), name="") == refused


def test_what_the_operator_set_for_all_groups_is_shown_as_a_default() -> None:
    shown = described(Harness(group_consumer_session_timeout_ms="50000"))
    assert set(shown) == set(keys_of(DEFAULT_RELEASE).group)
    assert shown[SESSION] == ("50000", 5, [(SESSION, "50000", 5)])
    assert shown["share.isolation.level"] == ("read_uncommitted", 5, [("share.isolation.level", "read_uncommitted", 5)])


def test_a_key_that_was_deleted_is_a_default_again_and_the_group_stays_listed() -> None:
    harness = Harness()
    alter(harness, (SESSION, SET, "50000"))
    assert alter(harness, (SESSION, DELETE, None)) == (0, None)
    assert described(harness)[SESSION][:2] == ("45000", 5)
    assert listed(harness, GROUP) == (0, [("g", GROUP)])


def test_validate_only_sets_nothing() -> None:
    harness = Harness()
    assert alter(harness, (SESSION, SET, "50000"), validate_only=True) == (0, None)
    assert listed(harness, GROUP) == (0, [])


def test_alter_configs_replaces_all_that_a_group_has() -> None:
    harness = Harness()
    alter(harness, (SESSION, SET, "50000"))
    config = m.AlterConfigsRequestAlterableConfig(name=BEAT, value="6000")
    resource = m.AlterConfigsRequestAlterConfigsResource(resource_type=GROUP, resource_name="g", configs=[config])
    (answer,) = harness.ask(ApiKey.ALTER_CONFIGS, m.AlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == 0
    assert {name for name, (_, source, _) in described(harness).items() if source == 8} == {BEAT}


def test_what_has_configurations_is_listed_by_type() -> None:
    harness = Harness()
    harness.create("t")
    alter(harness, (SESSION, SET, "50000"))
    everything = [("g", GROUP), ("1", LOGGER), ("1", BROKER), ("t", TOPIC)]
    assert listed(harness) == (0, everything)
    for kind in (GROUP, LOGGER, BROKER, TOPIC, METRICS):
        assert listed(harness, kind) == (0, [each for each in everything if each[1] == kind])
    assert listed(harness, TOPIC, GROUP) == (0, [("g", GROUP), ("t", TOPIC)])
    assert listed(harness, TOPIC, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert listed(harness, version=0) == (0, [])


@pytest.mark.parametrize("name", ["g", "gröup/1:2", "🙂"])
def test_configurations_are_there_after_a_restart(tmp_path: Path, name: str) -> None:
    node = VirtualNode()
    harness = reopened(tmp_path, node)
    alter(harness, (SESSION, SET, "50000"), name=name)
    alter(harness, (BEAT, SET, "6000"), name=name)
    before = described(harness, name)
    harness.store.close()
    harness = reopened(tmp_path, node)
    assert described(harness, name) == before
    assert before[SESSION][0] == "50000"
    harness.store.close()


def test_the_number_of_groups_with_configurations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that have none any more do not count; beyond the bound they are not listed any more."""
    monkeypatch.setattr("kohort.broker.catalog.CONFIGURED_GROUPS_MAX", 3)
    monkeypatch.setattr("kohort.broker.catalog_view.CONFIGURED_GROUPS_MAX", 3)
    harness = Harness()
    for name in ("a", "b", "c"):
        assert alter(harness, (BEAT, SET, "5000"), name=name) == (0, None)
    assert alter(harness, (BEAT, SET, "5000"), name="d")[0] == ErrorCode.POLICY_VIOLATION
    assert alter(harness, (BEAT, SET, "6000"), name="b") == (0, None)
    assert alter(harness, (BEAT, DELETE, None), name="a") == (0, None)
    assert [name for name, _ in listed(harness, GROUP)[1]] == ["a", "b", "c"]
    assert alter(harness, (BEAT, SET, "5000"), name="d") == (0, None)
    assert [name for name, _ in listed(harness, GROUP)[1]] == ["b", "c", "d"]
    for number in range(20):
        alter(harness, (BEAT, DELETE, None), name="c")
        assert alter(harness, (BEAT, SET, "5000"), name=f"e{number}") == (0, None)
        alter(harness, (BEAT, DELETE, None), name=f"e{number}")
        assert len(list(harness.broker.catalog.configured_groups())) <= 3
        assert alter(harness, (BEAT, SET, "5000"), name="c") == (0, None)
