"""
Values that another version has stored and that this one cannot use: the start sets each aside, names it, and serves.

A value of a kind is written into the catalog as no request can store it.
"""

from typing import Any

import msgspec
import pytest

from kohort.broker.catalog.catalog import topic_record
from kohort.broker.features import Features
from kohort.broker.quotas.limits import quota_values
from kohort.model.errors import ConfigError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import encode_batch
from tests.broker.configs.test_configs import BROKER, GROUP, SET, TOPIC, alter, describe, shown
from tests.broker.harness import Harness

LEAST = str(-(1 << 63))
SECRETS = {"salt": "c2FsdA==", "stored_key": "a2V5", "server_key": "a2V5"}
TOKEN: dict[str, Any] = {
    "owner": ["User", "a"],
    "requester": ["User", "a"],
    "renewers": [],
    "issued_ms": 1,
    "expires_ms": 2,
    "max_ms": 3,
}

BROKERS = [  # the configurations of all brokers, or of one; which of them are set aside
    ("", {"log.flush.interval.ms": LEAST, "log.cleaner.backoff.ms": "7"}, ["log.flush.interval.ms"]),
    ("", {"log.segment.bytes": "1"}, ["log.segment.bytes"]),
    (
        "",
        {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "50"},
        ["log.cleaner.min.compaction.lag.ms"],
    ),
    ("", {"log.retention.ms": "1" * 4_400, "num.io.threads": "1000"}, ["log.retention.ms"]),
    ("", {"log.cleaner.threads": "0"}, ["log.cleaner.threads"]),
    ("", {"max.connections": "0", "max.connections.per.ip": "0"}, ["max.connections", "max.connections.per.ip"]),
    ("", {"max.connections.per.ip.overrides": "localhost:9"}, ["max.connections.per.ip.overrides"]),
    ("1", {"log.flush.interval.ms": "-1"}, ["log.flush.interval.ms"]),
    ("1", {"max.connections.per.ip.overrides": "127.0.0.1:" + "9" * 5_000}, ["max.connections.per.ip.overrides"]),
    ("1", {"node.id": "7", "group.min.session.timeout.ms": "0"}, ["group.min.session.timeout.ms", "node.id"]),
    ("1", {"listeners": "PLAINTEXT://:99999"}, ["listeners"]),
    ("1", {"log.roll.ms": 5, "my.key": None}, ["log.roll.ms", "my.key"]),
    ("", {"sasl.enabled.mechanisms": "PLAIN"}, ["sasl.enabled.mechanisms"]),
]
QUOTAS: list[tuple[str, dict[str, Any], list[str]]] = [  # an entity, its quotas; which of them are set aside
    ('[["client-id", null]]', {"request_percentage": None, "producer_byte_rate": 1e6}, ["request_percentage"]),
    ('[["client-id", null]]', {"request_percentage": -1.0}, ["request_percentage"]),
    ('[["client-id", null]]', {"request_percentage": "much"}, ["request_percentage"]),
    ('[["client-id", null]]', {"controller_mutation_rate": 10**400}, ["controller_mutation_rate"]),
    ('[["client-id", null]]', {"consumer_byte_rate": 0.5, "no.such.rate": 1}, ["consumer_byte_rate", "no.such.rate"]),
    ('[["ip", "nobody"]]', {"connection_creation_rate": 5.0}, ["connection_creation_rate"]),
    ('[["ip", null]]', {"connection_creation_rate": 1e10}, ["connection_creation_rate"]),
    ('[["client-id", null]]', {"request_percentage": "Infinity"}, []),
    ("[]", {"request_percentage": 1.0}, ["request_percentage"]),
    ("no entity", {"request_percentage": 1.0}, ["request_percentage"]),
    ('[["client-id", 5]]', {"request_percentage": 1.0}, ["request_percentage"]),
]
WHOLES: list[tuple[str, str, dict[str, Any]]] = [
    ("client-metrics", "s", {"interval.ms": "1" * 4_400}),
    ("client-metrics", "s", {"interval.ms": None}),
    ("client-metrics", "s", {"match": "client_id=("}),
    ("client-metrics", "s", {"colour": "red"}),
    ("client-metrics", "", {"interval.ms": "1000"}),
    ("scram", "9:user", {"iterations": 4_096, **SECRETS}),
    ("scram", "1:user", {"iterations": "many", **SECRETS}),
    ("scram", "1:user", {"iterations": 2**31, **SECRETS}),
    ("scram", "user", {"iterations": 4_096, **SECRETS}),
    ("scram", "1:user", {"iterations": 4_096, **SECRETS, "salt": "*"}),
    ("scram", "1:user", {"iterations": 4_096}),
    ("acl", "", {}),
    ("acl", "not JSON", {}),
    ("acl", '[2,3,"t","User:a","*",3]', {}),
    ("acl", '[2,3,"t","User:a","*",3,"3"]', {}),
    ("acl", '[8,3,"t","User:a","*",3,3]', {}),
    ("acl", '[2,1,"t","User:a","*",3,3]', {}),
    ("acl", '[2,3,"","User:a","*",3,3]', {}),
    ("acl", '[4,3,"t","User:a","*",3,3]', {}),
    ("acl", '[2,3,"t","a","*",3,3]', {}),
    ("acl", '[2,3,"t","User:a","",3,3]', {}),
    ("acl", '[2,3,"t","User:a","10.0.0.0/33",3,3]', {}),
    ("acl", '[2, 3,"t","User:a","*",3,3]', {}),
    ("acl", f'[2,4,"{"x" * 250}","User:a","*",3,3]', {}),
    ("acl", f'[2,3,"{"x" * 2_050}","User:a","*",3,3]', {}),
    ("feature", "transaction.version", {"level": "high"}),
    ("feature", "metadata.version", {"level": 1}),
    ("feature", "group.version", {}),
    ("token", "t", {"owner": ["User", "a"]}),
    ("token", "t", TOKEN | {"owner": ["User"]}),
    ("token", "t", TOKEN | {"renewers": [["User", 5]]}),
    ("token", "t", TOKEN | {"renewers": 5}),
    ("token", "t", TOKEN | {"expires_ms": "soon"}),
    ("token", "t", TOKEN | {"max_ms": 2**63}),
]


def append(harness: Harness, key: str, value: object) -> None:
    """Append a record to the catalog's log behind the broker's back."""
    log = harness.broker.catalog._log
    assert log is not None, "this node leads it"
    record = (key.encode(), msgspec.json.encode(value))
    log.append(encode_batch([record], 0, base_sequence=-1), leader_epoch=log.leader_epoch)
    harness.node.settle()


def stored(*records: tuple[str, object], **settings: Any) -> Harness:
    """A broker that finds records in its catalog, as another version has left them. It has a topic."""
    harness = Harness()
    harness.create("t", segment_ms="77")
    for key, value in records:
        append(harness, key, value)
    return Harness(store=harness.store, node=harness.node, **settings)


def setting(kind: str, name: str, value: dict[str, Any]) -> tuple[str, object]:
    return f"setting:{kind}:{name}", {"version": 0, "setting": {"kind": kind, "name": name, "value": value}}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("catalog.set_aside")]


def check_serves(harness: Harness) -> None:
    name = f"new-{harness.node.clock.now_ms()}"
    harness.create(name)
    harness.write(name, b"x")
    harness.write("t", b"x")
    assert alter(harness, ("log.cleaner.backoff.ms", SET, "8"), kind=BROKER, name="") == 0
    assert alter(harness, ("retention.ms", SET, "9"), name="t") == 0


@pytest.mark.parametrize(("name", "configs", "refused"), BROKERS)
def test_configurations_of_brokers(
    name: str, configs: dict[str, Any], refused: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    harness = stored(setting("broker", name, configs))
    assert len(said(caplog)) == len(refused)
    for key, line in zip(refused, said(caplog), strict=True):
        assert f"kind=broker name={name!r} key={key!r} error=" in line
        assert key not in harness.broker.catalog.newest_settings("broker").get(name, {})
        assert key not in (harness.broker.config.dynamic if name else harness.broker.config.dynamic_defaults)
    for key in configs.keys() - refused:
        assert harness.broker.config.text(key) == configs[key]
    check_serves(harness)


def test_values_of_one_broker_are_judged_over_those_of_all() -> None:
    harness = stored(
        setting("broker", "1", {"max.connections.per.ip": "0"}),
        setting("broker", "", {"max.connections.per.ip.overrides": "127.0.0.1:5"}),
    )
    assert harness.broker.config.get_int("max.connections.per.ip") == 0


def test_a_start_with_other_values_takes_what_an_earlier_one_has_set_aside() -> None:
    """A retention above that of the start is set aside while it contradicts it."""
    harness = stored(setting("broker", "", {"log.local.retention.ms": "50"}), log_retention_ms="9")
    assert harness.broker.config.text("log.local.retention.ms") == "-2"
    again = Harness(store=harness.store, node=harness.node, log_retention_ms="90")
    assert again.broker.config.text("log.local.retention.ms") == "50"


@pytest.mark.parametrize("key", ["log_flush_interval_ms", "log_flush_scheduler_interval_ms", "log_roll_jitter_ms"])
def test_a_value_of_the_start_that_topics_cannot_have_ends_it(key: str) -> None:
    settings: dict[str, Any] = {key: "-1"}
    with pytest.raises(ConfigError):
        Harness(**settings)


@pytest.mark.parametrize("key", ["log_retention_hours", "log_retention_minutes", "log_retention_ms"])
@pytest.mark.parametrize("text", ["-1", "-7", "-2147483648"])
def test_a_negative_retention_of_the_start_is_no_limit(key: str, text: str) -> None:
    """Source: Kafka KafkaConfig.logRetentionTimeMillis."""
    settings: dict[str, Any] = {key: text}
    harness = Harness(**settings)
    harness.create("t")
    assert shown(describe(harness, TOPIC, "t"), "retention.ms")[0] == "-1"
    check_serves(harness)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("flush.ms", "-1"), ("retention.ms", "1" * 5_000), ("min.cleanable.dirty.ratio", "nan"), ("segment.bytes", "many"),
        ("cleanup.policy", "sometimes"), ("no.such.key", "1"), ("preallocate", ""),
    ],
)  # fmt: skip
def test_configurations_of_topics(key: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.create("t", segment_ms="77")
    topic = harness.broker.catalog.topic("t")
    assert topic is not None
    record_key, record = topic_record(msgspec.structs.replace(topic, configs={**topic.configs, key: text}))
    append(harness, record_key.decode(), msgspec.Raw(record))
    again = Harness(store=harness.store, node=harness.node)
    (line,) = said(caplog)
    assert f"kind=topic name='t' key={key!r} error=" in line
    entries = {entry.name: entry.value for entry in describe(again, TOPIC, "t").configs}
    assert entries["segment.ms"] == "77"
    assert entries.get(key) != text
    check_serves(again)


@pytest.mark.parametrize(
    ("key", "text"), [("consumer.session.timeout.ms", "4" * 4_400), ("share.isolation.level", "no"), ("x", "1")]
)
def test_configurations_of_groups(key: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    group = {"group_id": "g", "configs": {"consumer.heartbeat.interval.ms": "6000", key: text}}
    harness = stored(("group:g", {"version": 0, "group": group}))
    (line,) = said(caplog)
    assert f"kind=group name='g' key={key!r} error=" in line
    assert harness.broker.catalog.configured_group("g").configs == {"consumer.heartbeat.interval.ms": "6000"}
    assert shown(describe(harness, GROUP, "g"), "consumer.heartbeat.interval.ms")[0] == "6000"
    check_serves(harness)


@pytest.mark.parametrize(("name", "quotas", "refused"), QUOTAS)
def test_quotas(name: str, quotas: dict[str, Any], refused: list[str], caplog: pytest.LogCaptureFixture) -> None:
    harness = stored(setting("quota", name, quotas))
    assert [line.split(" error=")[0] for line in said(caplog)] == [
        f"catalog.set_aside kind=quota name={name!r} key={key!r}" for key in refused
    ]
    request = m.DescribeClientQuotasRequest(components=[], strict=False)
    described = harness.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, request).entries
    left = quota_values({key: value for key, value in quotas.items() if key not in refused})
    assert [{each.key: each.value for each in entry.values} for entry in described] == ([left] if left else [])
    check_serves(harness)


@pytest.mark.parametrize(("kind", "name", "fields"), WHOLES)
def test_settings_that_can_be_used_as_a_whole_only(
    kind: str, name: str, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    again = stored(setting(kind, name, fields))
    (line,) = said(caplog)
    assert f"kind={kind} name={name!r} key='' error=" in line
    assert not any(secret in line for secret in SECRETS.values())
    assert name not in again.broker.catalog.settings(kind)
    assert again.broker.features.level("metadata.version") == Features().level("metadata.version")
    check_serves(again)


@pytest.mark.parametrize("key", ["setting:quota:x", "group:g", "setting:scram:1:a"])
@pytest.mark.parametrize("value", [{"version": 0}, {"version": 0, "setting": 5}, [1], "x"])
def test_entries_of_another_form(key: str, value: object, caplog: pytest.LogCaptureFixture) -> None:
    again = stored((key, value))
    (line,) = said(caplog)
    assert f"key={key!r}" in line
    check_serves(again)


@pytest.mark.parametrize("content", [{"rates": []}, {"setting": 5}])
def test_entries_of_a_newer_version_end_the_start(content: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="newer version"):
        stored(("setting:quota:x", {"version": 1, **content}))
