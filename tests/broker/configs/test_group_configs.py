"""
Configurations of groups, resource type GROUP. Rows with a message were asked of Apache Kafka 4.4.0.

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


def _range(name: str, least: int, most: int) -> str:
    return f"{name} must be in the range {least} to {most} inclusive."


def _invalid(name: str, text: str, why: str) -> str:
    return f"Invalid value {text} for configuration {name}: {why}"


# fmt: off
LOCK, LOCKS, DELIVERIES = "share.record.lock.duration.ms", "share.partition.max.record.locks", "share.delivery.count.limit"
STANDBYS, WARMUPS, TASKS = "streams.num.standby.replicas", "streams.num.warmup.replicas", "streams.task.offset.interval.ms"
INTERVAL, DEAD = "consumer.assignment.interval.ms", "errors.deadletterqueue.topic.name"
TAGS = "streams.rack.aware.assignment.tags"
ASSIGNOR, RESET, ISOLATION = "streams.assignor.name", "share.auto.offset.reset", "share.isolation.level"
NOT_REGISTERED = "streams.assignor.name '{}' is not a registered task assignor. Registered assignors are: [sticky]."
TWICE = f"{TAGS} must not contain duplicate tag keys."
ONE_KEY: dict[tuple[str, str], str | None] = {  # the message of INVALID_CONFIG; None when it is set
    (SESSION, "45000"):  None,
    (SESSION, "60000"):  None,
    (SESSION, " 50000 "): None,
    (SESSION, "44999"):  _range(SESSION, 45000, 60000),
    (SESSION, "60001"):  _range(SESSION, 45000, 60000),
    (SESSION, "x"):      _invalid(SESSION, "x", "Not a number of type INT"),
    (SESSION, "0"):      _invalid(SESSION, "0", "Value must be at least 1"),
    (BEAT, "5000"):      None,
    (BEAT, "15000"):     None,
    (BEAT, "4999"):      _range(BEAT, 5000, 15000),
    (BEAT, "15001"):     _range(BEAT, 5000, 15000),
    ("share.session.timeout.ms", "44999"):     _range("share.session.timeout.ms", 45000, 60000),
    ("share.heartbeat.interval.ms", "15001"):  _range("share.heartbeat.interval.ms", 5000, 15000),
    (LOCK, "14999"):     _range(LOCK, 15000, 60000),
    (LOCK, "60001"):     _range(LOCK, 15000, 60000),
    (LOCK, "999"):       _invalid(LOCK, "999", "Value must be at least 1000"),
    (DELIVERIES, "10"):  None,
    (DELIVERIES, "11"):  _range(DELIVERIES, 2, 10),
    (DELIVERIES, "1"):   _invalid(DELIVERIES, "1", "Value must be at least 2"),
    (LOCKS, "100"):      None,
    (LOCKS, "4001"):     _range(LOCKS, 100, 4000),
    (LOCKS, "99"):       _invalid(LOCKS, "99", "Value must be at least 100"),
    ("streams.session.timeout.ms", "60001"):   _range("streams.session.timeout.ms", 45000, 60000),
    ("streams.heartbeat.interval.ms", "4999"): _range("streams.heartbeat.interval.ms", 5000, 15000),
    (STANDBYS, "2"):     None,
    (STANDBYS, "3"):     f"{STANDBYS} must be less than or equal to 2",
    (STANDBYS, "-1"):    _invalid(STANDBYS, "-1", "Value must be at least 0"),
    (WARMUPS, "21"):     f"{WARMUPS} must be less than or equal to 20",
    (TASKS, "14999"):    f"{TASKS} must be greater than or equal to 15000",
    ("streams.initial.rebalance.delay.ms", "-1"):
        _invalid("streams.initial.rebalance.delay.ms", "-1", "Value must be at least 0"),
    (INTERVAL, "0"):     None,
    (INTERVAL, "15001"): _range(INTERVAL, 0, 15000),
    (INTERVAL, "-1"):    _invalid(INTERVAL, "-1", "Value must be at least 0"),
    ("share.assignment.interval.ms", "15001"):   _range("share.assignment.interval.ms", 0, 15000),
    ("streams.assignment.interval.ms", "15001"): _range("streams.assignment.interval.ms", 0, 15000),
    (ASSIGNOR, " sticky "): None,
    (ASSIGNOR, "X"):     NOT_REGISTERED.format("X"),
    (ASSIGNOR, ""):      NOT_REGISTERED.format(""),
    (TAGS, "a,b"):       None,
    (TAGS, ""):          None,
    (TAGS, "a,a"):       TWICE,
    (TAGS, ","):         TWICE,
    (TAGS, "a,,b"):      f"Configuration '{TAGS}' values must not be empty.",
    (DEAD, "foo"):       None,
    (DEAD, "a b"):       None,
    (DEAD, ""):          None,
    (DEAD, " __x"):      f"{DEAD}: DLQ topic name must not start with '__'",
    (ISOLATION, "read_committed"): None,
    (ISOLATION, "READ_COMMITTED"):
        _invalid(ISOLATION, "READ_COMMITTED", "String must be one of: read_committed, read_uncommitted"),
    (RESET, "earliest"):           None,
    (RESET, "by_duration:PT1H"):   None,
    (RESET, "by_duration:P1DT2.5S"): None,
    **{(RESET, bad): _invalid(RESET, bad, f"Invalid value `{bad}` for configuration {RESET}. {RESET_VALUES}")
       for bad in ("", "bogus", "by_duration:x", "by_duration:P", "by_duration:PT", "by_duration:-PT1H")},
    ("no.such", "1"):    "Unknown group config name: no.such",
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
    ((TAGS, APPEND, "a"),): (40, f"Can't APPEND to key {TAGS} because its type is not LIST."),
    # Parsed first; then the ranges in Kafka's order; the assignor.
    ((BEAT, SET, "1"), (TAGS, SET, "a,a")): (40, TWICE),
    ((SESSION, SET, "60001"), (BEAT, SET, "4999")): (40, _range(BEAT, 5000, 15000)),
    ((INTERVAL, SET, "99999"), (SESSION, SET, "1")): (40, _range(SESSION, 45000, 60000)),
    (("share.assignment.interval.ms", SET, "99999"), (DELIVERIES, SET, "99"), (LOCKS, SET, "99999")):
        (40, _range(DELIVERIES, 2, 10)),
    (("streams.assignment.interval.ms", SET, "99999"), (TASKS, SET, "1"), (WARMUPS, SET, "99")):
        (40, _range("streams.assignment.interval.ms", 0, 15000)),
    ((ASSIGNOR, SET, "zz"), (WARMUPS, SET, "99")): (40, f"{WARMUPS} must be less than or equal to 20"),
    ((DEAD, SET, "__x"), (ASSIGNOR, SET, "zz")): (40, NOT_REGISTERED.format("zz")),
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
        value, source, (own, *defaults) = described(harness)[key]
        assert (value, source, own) == (text.strip(), 8, (key, text.strip(), 8))
        assert [each[2] for each in defaults] == [5]
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
    assert alter(harness, (SESSION, SET, "3000"), (DEAD, SET, "__x"), name="i") == too_short


def test_the_group_without_a_name() -> None:
    refused = (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    assert alter(Harness(), (SESSION, SET, "50000"), name="") == refused


def test_values_that_a_group_has_not_are_the_brokers_under_the_brokers_keys() -> None:
    harness = Harness(group_consumer_session_timeout_ms="50000")
    assert alter_broker(harness, "", (INTERVAL, SET, "2000")) == (0, None)
    shown = described(harness)
    assert set(shown) == {name for name, key in keys_of(DEFAULT_RELEASE).group.items() if not key.is_internal}
    assert len(shown) == 21
    session = [(f"group.{SESSION}", "50000", 4), (f"group.{SESSION}", "45000", 5)]
    assert shown[SESSION] == ("50000", 4, session)
    assert shown[INTERVAL] == ("2000", 3, [(f"group.{INTERVAL}", "2000", 3), (f"group.{INTERVAL}", "1000", 5)])
    assert shown[ASSIGNOR] == ("sticky", 5, [("group.streams.assignors", "sticky", 5)])
    assert shown[TAGS] == ("", 5, [(f"group.{TAGS}", "", 5)])
    assert shown[ISOLATION] == ("read_uncommitted", 5, [(ISOLATION, "read_uncommitted", 5)])
    alter(harness, (SESSION, SET, "55000"), (ISOLATION, SET, "read_committed"))
    shown = described(harness)
    assert shown[SESSION] == ("55000", 8, [(SESSION, "55000", 8), *session])
    assert shown[ISOLATION][2] == [(ISOLATION, "read_committed", 8), (ISOLATION, "read_uncommitted", 5)]


def test_a_group_without_configurations_is_not_listed() -> None:
    harness = Harness()
    alter(harness, (SESSION, SET, "50000"))
    assert listed(harness, GROUP) == (0, [("g", GROUP)])
    assert alter(harness, (SESSION, DELETE, None)) == (0, None)
    assert described(harness)[SESSION][:2] == ("45000", 5)
    assert listed(harness, GROUP) == (0, [])


def alter_broker(harness: Harness, name: str, *changes: Change) -> tuple[int, str | None]:
    configs = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=f"group.{key}", config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=BROKER, resource_name=name, configs=configs
    )
    (answer,) = harness.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, m.IncrementalAlterConfigsRequest(resources=[resource])
    ).responses
    return answer.error_code, answer.error_message


def test_a_stored_value_is_cut_to_the_bounds_of_a_later_start(caplog: pytest.LogCaptureFixture) -> None:
    """The seen answers of a 4.4.0 that was started again with other bounds."""
    harness = Harness(group_consumer_min_session_timeout_ms="1000")
    assert alter(harness, (SESSION, SET, "10000")) == (0, None)
    assert alter(harness, (INTERVAL, SET, "14000"), name="h") == (0, None)
    assert harness.broker.group_configs.in_force("g") == {SESSION: "10000"}
    again = Harness(
        store=harness.store,
        node=harness.node,
        group_consumer_min_session_timeout_ms="20000",
        group_consumer_max_assignment_interval_ms="12000",
    )
    in_force = again.broker.group_configs.in_force
    assert (in_force("g"), in_force("h"), in_force("i")) == ({SESSION: "20000"}, {INTERVAL: "12000"}, {})
    assert "config.cut group='g' key=consumer.session.timeout.ms value=10000 used=20000" in caplog.text
    assert described(again)[SESSION][:2] == ("10000", 8), "what is stored is shown"
    refused = (40, _range(SESSION, 20000, 60000))
    assert alter(again, (BEAT, SET, "6000")) == alter(again, ("no.such", DELETE, None)) == refused
    assert alter(again, (SESSION, SET, "30000")) == (0, None)
    assert in_force("g") == {SESSION: "30000"}


def test_an_interval_of_brokers_is_cut_to_the_bounds_of_a_later_start(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    too_long = f"group.{INTERVAL} must be less than or equal to group.consumer.max.assignment.interval.ms"
    assert alter_broker(harness, "1", (INTERVAL, SET, "15001")) == (42, too_long)
    assert alter_broker(harness, "1", (INTERVAL, SET, "14000")) == (0, None)
    again = Harness(store=harness.store, node=harness.node, group_consumer_max_assignment_interval_ms="12000")
    assert again.broker.config.get_int(f"group.{INTERVAL}") == 12_000
    assert f"config.cut key=group.{INTERVAL} value=14000 used=12000" in caplog.text
    synonyms = [(f"group.{INTERVAL}", "14000", 2), (f"group.{INTERVAL}", "1000", 5)]
    assert described(again)[INTERVAL] == ("12000", 2, synonyms)
    # Every change of brokers is refused until the stored value is within the bounds.
    assert alter_broker(again, "", ("share.assignment.interval.ms", SET, "5")) == (42, too_long)
    assert alter_broker(again, "1", (INTERVAL, SET, "12000")) == (0, None)
    assert alter_broker(again, "", ("share.assignment.interval.ms", SET, "5")) == (0, None)


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
    """Those that have none any more do not count."""
    monkeypatch.setattr("kohort.broker.catalog.catalog.CONFIGURED_GROUPS_MAX", 3)
    harness = Harness()
    for name in ("a", "b", "c"):
        assert alter(harness, (BEAT, SET, "5000"), name=name) == (0, None)
    assert alter(harness, (BEAT, SET, "5000"), name="d")[0] == ErrorCode.POLICY_VIOLATION
    assert alter(harness, (BEAT, SET, "6000"), name="b") == (0, None)
    assert alter(harness, (BEAT, DELETE, None), name="a") == (0, None)
    assert alter(harness, (BEAT, SET, "5000"), name="d") == (0, None)
    assert [name for name, _ in listed(harness, GROUP)[1]] == ["b", "c", "d"]
    assert len(list(harness.broker.catalog.configured_groups())) == 3
