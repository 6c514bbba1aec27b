"""
Configurations of brokers, loggers and client metrics that are changed at run time: effects, sources, restarts, bounds.

`tests/tables/test_config_changes.py` has the table of allowed and refused changes. Source: KIP-226, KIP-412, KIP-714.
"""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.configs import client_metrics
from kohort.broker.configs.client_metrics import CLIENT_METRICS_KIND, Subscription
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.limits import CLIENT_METRICS_SUBSCRIPTIONS_MAX, CONFIG_LENGTH_MAX, CONFIGS_MAX
from kohort.storage.log import CleanerConfig
from kohort.storage.memory import MemoryStore
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.configs.test_configs import (
    APPEND,
    BROKER,
    DELETE,
    LOGGER,
    METRICS,
    SET,
    TOPIC,
    alter,
    describe,
    shown,
)
from tests.broker.harness import Harness, reopened

DYNAMIC, DYNAMIC_DEFAULT, STATIC, DEFAULT = 2, 3, 4, 5


def set_broker(harness: Harness, name: str, key: str, value: str | None) -> None:
    operation = DELETE if value is None else SET
    assert alter(harness, (key, operation, value), kind=BROKER, name=name) == 0


# Sources


def test_the_broker_goes_before_all_brokers_before_the_start_before_the_default() -> None:
    harness = Harness(log_retention_ms="3")
    harness.create("t")
    steps = (
        ("", "2", "2", DYNAMIC_DEFAULT),
        ("1", "1", "1", DYNAMIC),
        ("", "4", "1", DYNAMIC),
        ("1", None, "4", DYNAMIC_DEFAULT),
        ("", None, "3", STATIC),
    )
    for name, value, effective, source in steps:
        set_broker(harness, name, "log.retention.ms", value)
        assert shown(describe(harness, BROKER, "1"), "log.retention.ms")[:2] == (effective, source)
        assert shown(describe(harness, TOPIC, "t"), "retention.ms")[:2] == (effective, source)
        assert harness.broker.config.get_int("log.retention.ms") == int(effective)


def test_synonyms_of_a_changed_configuration() -> None:
    harness = Harness(log_retention_ms="3")
    harness.create("t")
    set_broker(harness, "", "log.retention.ms", "2")
    set_broker(harness, "1", "log.retention.ms", " 1 ")
    synonyms = [
        ("log.retention.ms", " 1 ", DYNAMIC),
        ("log.retention.ms", "2", DYNAMIC_DEFAULT),
        ("log.retention.ms", "3", STATIC),
        ("log.retention.hours", "168", DEFAULT),
    ]
    assert shown(describe(harness, BROKER, "1"), "log.retention.ms") == ("1", DYNAMIC, synonyms)
    assert shown(describe(harness, TOPIC, "t"), "retention.ms") == ("1", DYNAMIC, synonyms)
    assert shown(describe(harness, BROKER, ""), "log.retention.ms") == (
        "2",
        DYNAMIC_DEFAULT,
        [("log.retention.ms", "2", DYNAMIC_DEFAULT)],
    )


def test_keys_of_listeners_and_plug_ins_are_kept_and_read_only() -> None:
    harness = Harness()
    prefix = "listener.name.plaintext.ssl.keystore."
    for key in (f"{prefix}location", f"{prefix}certificate.chain", "my.password"):
        set_broker(harness, "1", key, "x")
    entries = {entry.name: entry for entry in describe(harness, BROKER, "1").configs}
    found = {
        name.removeprefix(prefix): (
            entry.value,
            entry.config_source,
            entry.read_only,
            entry.is_sensitive,
            entry.config_type,
        )
        for name, entry in entries.items()
        if name.startswith(prefix) or name == "my.password"
    }
    assert found == {
        "location": ("x", DYNAMIC, True, False, 2),
        "certificate.chain": (None, DYNAMIC, True, True, 9),
        "my.password": (None, DYNAMIC, True, True, 0),
    }


@pytest.mark.parametrize(
    "key", ["ssl.key.password", "ssl.keystore.key", "ssl.keystore.password", "plain.sasl.jaas.config"]
)
def test_a_secret_is_not_stored(key: str) -> None:
    """Kafka keeps it in clear in its metadata log."""
    harness = Harness()
    name = f"listener.name.new.{key}"
    assert alter(harness, (name, SET, "of-the-test"), kind=BROKER, name="1") == ErrorCode.INVALID_REQUEST
    assert name not in harness.broker.catalog.newest_settings("broker").get("1", {})


# Effects


def test_a_new_default_reaches_the_logs_of_topics_without_their_own_value() -> None:
    harness = Harness()
    harness.create("plain")
    harness.create("own", max_message_bytes="2000")
    for topic in ("plain", "own"):
        harness.write(topic, b"x" * 1000)
    set_broker(harness, "", "message.max.bytes", "500")
    answers = {topic: answer.error_code for topic in ("plain", "own") for answer in produce(harness, topic)}
    assert answers == {"plain": ErrorCode.MESSAGE_TOO_LARGE, "own": 0}
    harness.create("new")
    assert [answer.error_code for answer in produce(harness, "new")] == [ErrorCode.MESSAGE_TOO_LARGE]
    set_broker(harness, "", "message.max.bytes", None)
    assert [answer.error_code for answer in produce(harness, "plain")] == [0]


def produce(harness: Harness, topic: str) -> list[m.ProduceResponsePartitionProduceResponse]:
    from tests.broker.harness import batch

    return list(harness.produce(topic, {0: batch(b"x" * 1000)}))


def test_thousands_of_topics_get_a_new_default_in_steps() -> None:
    harness = Harness()
    for number in range(450):
        harness.create(f"t{number}")
        harness.write(f"t{number}", b"x")
    catalog = harness.broker.catalog
    set_broker(harness, "1", "log.segment.bytes", "1048577")
    harness.node.advance(1)
    partitions = [harness.broker.partitions.find(topic.name, 0) for topic in catalog.topics()]
    assert {each.log.config.segment_bytes for each in partitions if each} == {1_048_577}


def test_verification_and_the_expiry_of_producers_follow_their_configuration() -> None:
    harness = Harness()
    assert harness.broker.config.get_bool("transaction.partition.verification.enable")
    set_broker(harness, "1", "transaction.partition.verification.enable", "false")
    assert not harness.broker.config.get_bool("transaction.partition.verification.enable")
    set_broker(harness, "", "producer.id.expiration.ms", "1")
    assert harness.broker.config.get_int("producer.id.expiration.ms") == 1


def test_a_changed_interval_of_the_cleaner_counts_from_the_change(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness(log_cleaner_backoff_ms="1000000")
    cleaned: list[int] = []

    def clean(config: CleanerConfig) -> None:
        cleaned.append(config.threads)

    assert isinstance(harness.store, MemoryStore)
    monkeypatch.setattr(harness.store.cleaner, "clean", clean)
    set_broker(harness, "1", "log.cleaner.threads", "2")
    set_broker(harness, "1", "log.cleaner.backoff.ms", "10")
    harness.node.advance(10)
    assert cleaned == [2]


# Starts

# fmt: off
REFUSED_STARTS = {
    ("log_retention_ms", "0"): "log.retention.ms must be unlimited (-1) or, greater than or equal to 1",
    ("log_roll_ms", "0"): "log.roll.ms must be greater than or equal to 1",
    ("log_roll_jitter_ms", "-1"): "log.roll.jitter.ms must be greater than or equal to 0",
    ("log_cleaner_dedupe_buffer_size", "1048576"): "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
}
# fmt: on


@pytest.mark.parametrize("setting", REFUSED_STARTS)
def test_a_start_is_refused_as_by_kafka(setting: tuple[str, str]) -> None:
    """Source: Kafka AbstractKafkaConfig.validateValues."""
    name, value = setting
    with pytest.raises(ConfigError) as refused:
        Harness(store=None, **{name: value})  # type: ignore[arg-type]
    assert str(refused.value) == f"requirement failed: {REFUSED_STARTS[setting]}"


def test_the_log_names_changed_configurations(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    with caplog.at_level(logging.INFO, "kohort.broker"):
        for key, value in (("log.cleaner.threads", "2"), ("num.io.threads", "9"), ("my\nkey", "x")):
            set_broker(harness, "1", key, value)
    assert [line.getMessage() for line in caplog.records] == [
        "config.changed key='log.cleaner.threads'",
        "config.without_effect key=num.io.threads",
        r"config.changed key='my\nkey'",
    ]


# Restarts


def test_changes_survive_a_restart(tmp_path: Path) -> None:
    node = VirtualNode()
    harness = reopened(tmp_path, node)
    set_broker(harness, "1", "message.max.bytes", "500")
    set_broker(harness, "", "min.insync.replicas", "2")
    set_broker(harness, "", "no.such.key", "x")
    assert alter(harness, ("interval.ms", SET, "100"), kind=METRICS, name="s") == 0
    before = [describe(harness, *resource) for resource in ((BROKER, "1"), (BROKER, ""), (METRICS, "s"))]
    harness.store.close()
    harness = reopened(tmp_path, node)
    assert [describe(harness, *resource) for resource in ((BROKER, "1"), (BROKER, ""), (METRICS, "s"))] == before
    assert harness.broker.config.get_int("message.max.bytes") == 500
    assert shown(before[1], "min.insync.replicas")[0] == "2"
    harness.store.close()


# Loggers


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger("kohort.broker")
    yield found
    found.setLevel(logging.NOTSET)


def test_levels_of_loggers(logger: logging.Logger) -> None:
    harness = Harness()
    steps = (("TRACE", 5), ("DEBUG", 10), ("FATAL", logging.CRITICAL), (None, logging.NOTSET))
    for level, number in steps:
        assert alter(harness, (logger.name, DELETE if level is None else SET, level), kind=LOGGER, name="1") == 0
        assert logger.level == number
        if level is not None:
            assert shown(describe(harness, LOGGER, "1"), logger.name)[:2] == (level, 6)


def test_a_refused_change_of_one_logger_changes_none(logger: logging.Logger) -> None:
    changes = ((logger.name, SET, "DEBUG"), ("no.such.logger", SET, "DEBUG"))
    assert alter(Harness(), *changes, kind=LOGGER, name="1") == ErrorCode.INVALID_CONFIG
    assert logger.level == logging.NOTSET


# Client metrics


def test_subscriptions_of_client_metrics() -> None:
    harness = Harness()
    catalog = harness.broker.catalog

    def subscriptions() -> list[Subscription]:
        return [Subscription.of(*each) for each in sorted(catalog.settings(CLIENT_METRICS_KIND).items())]

    assert subscriptions() == []
    changes = (
        ("metrics", SET, "org.apache.kafka.consumer., *"),
        ("match", SET, "client_id=app-.*,client_software_name=x"),
    )
    assert alter(harness, *changes, kind=METRICS, name="s") == 0
    assert alter(harness, ("interval.ms", SET, "100"), kind=METRICS, name="a") == 0
    first, second = subscriptions()
    assert first == Subscription("a", 100, (), {})
    assert (second.name, second.interval_ms, second.metrics) == ("s", 300_000, ("org.apache.kafka.consumer.", "*"))
    assert [second.match["client_id"].matches(text) for text in ("app-1", "my-app-1")] == [True, False]
    assert listed(harness) == ["a", "s"]
    assert alter(harness, *((key, DELETE, None) for key in ("metrics", "match")), kind=METRICS, name="s") == 0
    assert listed(harness) == ["a"]


def listed(harness: Harness) -> list[str]:
    request = m.ListConfigResourcesRequest()
    resources = harness.ask(ApiKey.LIST_CONFIG_RESOURCES, request, version=0).config_resources
    return [resource.resource_name for resource in resources]


def test_sources_of_a_subscription() -> None:
    harness = Harness()
    assert alter(harness, ("match", SET, " client_id = a "), kind=METRICS, name="s") == 0
    result = describe(harness, METRICS, "s")
    assert shown(result, "match") == ("client_id = a", 7, [("match", "client_id = a", 7)])
    assert shown(result, "interval.ms") == ("300000", DEFAULT, [])


# Bounds


def test_a_list_that_grows_is_bounded_in_bytes() -> None:
    """Kafka counts characters, but a string of its protocol has at most as many bytes."""
    harness = Harness()
    for value, change, code in (
        ("é" * 16_000, SET, 0),
        ("á" * 384, APPEND, ErrorCode.INVALID_CONFIG),
        ("á" * 383, APPEND, 0),
    ):
        assert alter(harness, ("ssl.cipher.suites", change, value), kind=BROKER, name="1") == code


def test_what_clients_can_store_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = Harness()
    assert alter(harness, ("my.key0", SET, "x" * CONFIG_LENGTH_MAX), kind=BROKER, name="1") == 0
    for low in range(0, CONFIGS_MAX, 500):
        many = [(f"my.key{low + number}", SET, "x") for number in range(500)]
        assert alter(harness, *many, kind=BROKER, name="1") == 0
    assert alter(harness, ("my.key", SET, "x"), kind=BROKER, name="1") == ErrorCode.INVALID_CONFIG
    for entry, number in (("client_id=a", 16), (r"client_id=\pL", 4), ("client_id=.{800}", 1)):
        for count, code in ((number, 0), (number + 1, ErrorCode.INVALID_CONFIG)):
            entries = ",".join([entry] * count)
            assert alter(harness, ("match", SET, entries), kind=METRICS, name="s", validate_only=True) == code
    monkeypatch.setattr(client_metrics, "CLIENT_METRICS_SUBSCRIPTIONS_MAX", 1)
    assert CLIENT_METRICS_SUBSCRIPTIONS_MAX > 1
    assert alter(harness, ("interval.ms", SET, "100"), kind=METRICS, name="a") == 0
    assert alter(harness, ("interval.ms", SET, "200"), kind=METRICS, name="a") == 0
    assert alter(harness, ("interval.ms", SET, "100"), kind=METRICS, name="b") == ErrorCode.POLICY_VIOLATION


def test_one_broker_under_two_names_is_changed_twice() -> None:
    harness = Harness()
    change = m.IncrementalAlterConfigsRequestAlterableConfig
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource
    resources = [
        resource(resource_type=BROKER, resource_name=name, configs=[change(name=key, config_operation=SET, value="9")])
        for name, key in (("1", "num.io.threads"), ("01", "num.network.threads"), ("+1", "log.cleaner.backoff.ms"))
    ]
    # As in Kafka, the number of network threads may at most double.
    codes = harness.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, m.IncrementalAlterConfigsRequest(resources=resources)
    ).responses
    assert [answer.error_code for answer in codes] == [0, ErrorCode.INVALID_REQUEST, 0]
    assert harness.broker.config.dynamic == {"num.io.threads": "9", "log.cleaner.backoff.ms": "9"}


def test_a_key_of_a_listener_is_shown_with_the_value_for_all_listeners() -> None:
    """As a 4.4.0 does. Values of the start are shown, too."""
    name = "listener.name.ssl.connections.max.reauth.ms"
    settings: dict[str, Any] = {
        name: "7",
        "listener.name.ssl.plain.sasl.jaas.config": "x",
        "listener.name.ssl.unknown": "5",
    }
    harness = Harness(**settings)
    entries = {entry.name: entry for entry in describe(harness, BROKER, "1").configs}
    entry = entries[name]
    assert (entry.value, entry.config_source, entry.read_only, entry.config_type) == ("7", STATIC, True, 5)
    synonyms = [(each.name, each.value, each.source) for each in entry.synonyms]
    assert synonyms == [(name, "7", STATIC), ("connections.max.reauth.ms", "0", DEFAULT)]
    for hidden, kind in (("listener.name.ssl.plain.sasl.jaas.config", 9), ("listener.name.ssl.unknown", 0)):
        entry = entries[hidden]
        assert (entry.value, entry.is_sensitive, entry.config_type) == (None, True, kind)
        assert [(each.name, each.value) for each in entry.synonyms] == [(hidden, None)]
