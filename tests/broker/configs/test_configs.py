"""Configurations: what is valid, which value holds, and how it is shown. Source: Kafka ConfigDef, ConfigHelper."""

import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.configs.definitions import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, BrokerConfig, ConfigKey, keys_of
from kohort.broker.configs.topic_configs import BROKER_SYNONYMS, TopicConfigs
from kohort.broker.configs.values import text_of
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ConfigError, ErrorCode
from kohort.storage.log import LogConfig
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from tests.broker.harness import Asker, Harness, batch

# fmt: off
VALUES: dict[tuple[str, str], object] = {  # (topic key, text): the value; None when it is refused
    ("retention.ms", "-1"):                               -1,
    ("retention.ms", "-2"):                               None,
    ("retention.ms", " 5 "):                              5,
    ("retention.ms", "5.0"):                              None,
    ("retention.ms", ""):                                 None,
    ("retention.ms", "9223372036854775807"):              9223372036854775807,
    ("retention.ms", "9223372036854775808"):              None,
    ("max.message.bytes", "2147483647"):                  2147483647,
    ("max.message.bytes", "2147483648"):                  None,
    ("min.cleanable.dirty.ratio", "0.25"):                0.25,
    ("min.cleanable.dirty.ratio", "1.1"):                 None,
    ("preallocate", "TRUE"):                              True,
    ("preallocate", "yes"):                               None,
    ("cleanup.policy", "compact,delete"):                 ("compact", "delete"),
    ("cleanup.policy", ""):                               (),
    ("cleanup.policy", "Compact"):                        None,
    ("compression.type", "zstd"):                         "zstd",
    ("compression.type", "none"):                         None,
    ("compression.gzip.level", "-1"):                     -1,
    ("compression.gzip.level", "9"):                      9,
    ("compression.gzip.level", "10"):                     None,
    ("compression.gzip.level", "0"):                      None,
    ("message.timestamp.type", "LogAppendTime"):          "LogAppendTime",
    ("message.timestamp.type", "logappendtime"):          None,
    ("leader.replication.throttled.replicas", "*"):       ("*",),
    ("leader.replication.throttled.replicas", "0:1,1:1"): ("0:1", "1:1"),
    ("leader.replication.throttled.replicas", "0-1"):     None,
}
# fmt: on


@pytest.mark.parametrize("row", VALUES)
def test_values(row: tuple[str, str]) -> None:
    name, text = row
    key = TOPIC_KEYS[name]
    if VALUES[row] is None:
        with pytest.raises(ConfigError, match=f"Invalid value .* for configuration {name}: "):
            key.parse(text)
    else:
        assert key.parse(text) == VALUES[row]


@pytest.mark.parametrize("table", [BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS])
def test_every_default_is_valid_and_printed_as_it_is_written(table: dict[str, ConfigKey]) -> None:
    for key in table.values():
        if key.default is not None:
            value = key.parse(key.default)
            assert text_of(value) == key.default


def test_a_long_value_is_cut_in_the_message_that_refuses_it() -> None:
    with pytest.raises(ConfigError) as refused:
        TOPIC_KEYS["retention.ms"].parse("1" * 32_767)
    assert len(str(refused.value)) < 1_100


@given(st.sampled_from(sorted(BROKER_KEYS.values(), key=lambda key: key.name)), st.text(max_size=20))
def test_a_text_is_a_value_or_a_sentence(key: ConfigKey, text: str) -> None:
    try:
        value = key.parse(text)
    except ConfigError as error:
        assert key.name in str(error)  # noqa: PT017 -- not raising is right as well
    else:
        assert value is not None


def test_default_log_configuration_is_that_of_the_log() -> None:
    assert TopicConfigs(BrokerConfig()).log_config({}) == LogConfig()


def test_internal_segment_bytes_overrules_segment_bytes() -> None:
    """Tests set it, because `segment.bytes` is at least a MiB. Source: KIP-1030, LogConfig.segmentSize."""
    configs = TopicConfigs(BrokerConfig())
    overrides = {"segment.bytes": "2097152", "internal.segment.bytes": "1000"}
    assert configs.log_config(overrides).segment_bytes == 1000
    overrides |= {"cleanup.policy": "compact"}
    assert configs.log_config(overrides).segment_bytes == 1000


def test_topic_keys_and_their_brokers_have_the_same_defaults() -> None:
    for name, synonyms in BROKER_SYNONYMS.items():
        defaults = [
            str(int(text) * factor) if factor > 1 else text
            for broker_name, factor in synonyms
            if (text := BROKER_KEYS[broker_name].default) is not None
        ]
        assert defaults[0] == TOPIC_KEYS[name].default


# Where the operator's settings come from.


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# a comment\nnum.partitions=2\nlog.retention.ms = 5\nmin.insync.replicas: 2\nlog.roll.ms=9\n")
    config = BrokerConfig.load(
        file=file,
        environment={"KOHORT_SET_LOG_RETENTION_MS": "6", "KOHORT_SET_LOG_ROLL_MS": "10", "PATH": "/bin"},
        sets=["log.roll.ms=11"],
    )
    names = ("num.partitions", "min.insync.replicas", "log.retention.ms", "log.roll.ms", "num.io.threads")
    assert [config[name] for name in names] == [2, 2, 6, 11, 8]


def test_environment_as_in_kafkas_container_images() -> None:
    """Variables that are no configuration are those of something else."""
    environment = {
        "KOHORT_NUM_PARTITIONS": "2",
        "KOHORT_SET_NUM_PARTITIONS": "3",
        "KOHORT_LONG": "1",
        "KOHORT_SET_SUPER_USERS": "User:a",
        "KOHORT_SET_MY__OWN___KEY": "x",
        "KAFKA_NUM_IO_THREADS": "1",
        "KOHORT_LISTENER_NAME_SASL__PLAINTEXT_SCRAM___SHA___256_CONNECTIONS_MAX_REAUTH_MS": "5",
    }
    config = BrokerConfig.load(environment=environment)
    assert config.explicit == {"num.partitions": "2"}
    assert config.of_listeners == {"listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms": "5"}
    assert sorted(config.unknown) == ["my_own-key", "super.users"]


def test_toml(tmp_path: Path) -> None:
    file = tmp_path / "kohort.toml"
    file.write_text(
        'num.partitions = 4\n"log.cleanup.policy" = ["compact", "delete"]\n[auto.create]\ntopics.enable = false\n'
    )
    config = BrokerConfig.load(file=file)
    assert config.get_int("num.partitions") == 4
    assert config.get_list("log.cleanup.policy") == ("compact", "delete")
    assert not config.get_bool("auto.create.topics.enable")


# fmt: off
SENTENCES = {
    ("num.partitions",):        "Expected KEY=VALUE, not 'num.partitions'",
    ("num.partitions=0",):      "Invalid value 0 for configuration num.partitions: Value must be at least 1",
    ("num.partitions=many",):   "Invalid value many for configuration num.partitions: Not a number of type INT",
    ("compression.type=arj",):  "Invalid value arj for configuration compression.type: "
                                "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
}
# fmt: on


def test_an_unknown_configuration_is_kept_with_a_similar_name() -> None:
    """Kafka starts with any key, and warns: `super.users` is one of an authorizer, `listener.name.x.y` one of a listener."""
    config = BrokerConfig.load(sets=["num.partition=1", "super.users=User:a", "num.partitions=2"])
    assert config.explicit == {"num.partitions": "2"}
    assert config.unknown == {"num.partition": "num.partitions", "super.users": ""}


@pytest.mark.parametrize("sets", SENTENCES)
def test_sentences(sets: tuple[str]) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerConfig.load(sets=sets)
    assert str(raised.value) == SENTENCES[sets]


def test_file_that_is_not_there_or_not_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot read"):
        BrokerConfig.load(file=tmp_path / "nothing")
    (tmp_path / "bad.toml").write_text("a = ")
    with pytest.raises(ConfigError, match="Cannot parse"):
        BrokerConfig.load(file=tmp_path / "bad.toml")


# DescribeConfigs

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


def describe(
    harness: Harness, resource_type: int, name: str, *keys: str, version: int = 4, at: int = 1, **what: Any
) -> m.DescribeConfigsResult:
    resource = m.DescribeConfigsResource(
        resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
    )
    request = m.DescribeConfigsRequest(resources=[resource], **{"include_synonyms": True} | what)
    result: m.DescribeConfigsResult = harness.ask(ApiKey.DESCRIBE_CONFIGS, request, version=version, at=at).results[0]
    return result


def shown(result: m.DescribeConfigsResult, name: str) -> tuple[str | None, int, list[tuple[str, str | None, int]]]:
    (entry,) = (entry for entry in result.configs if entry.name == name)
    return entry.value, entry.config_source, [(s.name, s.value, s.source) for s in entry.synonyms]


# fmt: off
TOPIC_SHOWN = {  # (what the broker has, what the topic has, key): value, source, synonyms
    ((), (), "segment.bytes"):
        ("1073741824", 5, [("log.segment.bytes", "1073741824", 5)]),
    ((("log_segment_bytes", "2000000"),), (), "segment.bytes"):
        ("2000000", 4, [("log.segment.bytes", "2000000", 4), ("log.segment.bytes", "1073741824", 5)]),
    ((), (("segment_bytes", "3000000"),), "segment.bytes"):
        ("3000000", 1, [("segment.bytes", "3000000", 1), ("log.segment.bytes", "1073741824", 5)]),
    ((), (), "min.insync.replicas"):
        ("1", 3, [("min.insync.replicas", "1", 3), ("min.insync.replicas", "1", 5)]),
    ((), (), "retention.ms"):
        ("604800000", 5, []),        # log.retention.ms has no default, and hours do not show without it
    ((("log_retention_ms", "7"),), (), "retention.ms"):
        ("7", 4, [("log.retention.ms", "7", 4), ("log.retention.hours", "168", 5)]),
    ((("log_retention_hours", "1"),), (), "retention.ms"):
        ("3600000", 5, []),          # the value is right, the source is not: as in Kafka
    ((), (), "remote.storage.enable"):
        ("false", 5, []),
}
# fmt: on


@pytest.mark.parametrize("row", TOPIC_SHOWN)
def test_describe_topic(row: tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], str]) -> None:
    broker, topic, key = row
    harness = Harness(**dict[str, Any](broker))
    harness.create("t", **dict[str, Any](topic))
    assert shown(describe(harness, TOPIC, "t"), key) == TOPIC_SHOWN[row]


def test_describe_shows_what_was_asked_for() -> None:
    harness = Harness()
    harness.create("t")
    assert len(describe(harness, TOPIC, "t").configs) == 37
    (entry,) = describe(harness, TOPIC, "t", "flush.messages", "no.such.key", include_synonyms=False).configs
    assert (entry.name, entry.config_type, entry.read_only, entry.is_sensitive) == ("flush.messages", 5, False, False)
    assert (entry.synonyms, entry.documentation) == ((), None)


def test_describe_gives_our_documentation_of_each_key_when_it_is_asked_for() -> None:
    harness = Harness(super_users="User:a")
    harness.create("t")
    for kind, name in ((TOPIC, "t"), (BROKER, "1"), (BROKER, ""), (GROUP, "g"), (METRICS, "s")):
        for entry in describe(harness, kind, name, include_documentation=True).configs:
            assert (entry.documentation or "").endswith(".") != (entry.name == "super.users"), entry.name
    assert describe(harness, LOGGER, "1", include_documentation=True).configs[0].documentation == ""


def test_describe_broker() -> None:
    harness = Harness(ssl_key_password="secret", advertised_listeners="PLAINTEXT://a:1")
    result = describe(harness, BROKER, "1")
    entries = {entry.name: entry for entry in result.configs}
    assert set(entries) == {name for name, key in keys_of(DEFAULT_RELEASE).broker.items() if not key.is_internal}
    assert (entries["ssl.key.password"].value, entries["ssl.key.password"].is_sensitive) == (None, True)
    assert (entries["advertised.listeners"].config_source, entries["advertised.listeners"].read_only) == (4, True)
    assert [entries[name].value for name in ("node.id", "broker.id", "process.roles")] == [
        "1",
        "1",
        "broker,controller",
    ]
    assert (entries["node.id"].config_source, entries["node.id"].read_only) == (4, True)
    assert (entries["num.io.threads"].value, entries["num.io.threads"].read_only) == ("8", False)
    assert shown(result, "log.retention.hours") == ("168", 5, [("log.retention.hours", "168", 5)])
    assert shown(result, "min.insync.replicas")[1] == 3


def test_describe_dynamic_defaults() -> None:
    result = describe(Harness(), BROKER, "")
    assert [(entry.name, entry.value, entry.config_source) for entry in result.configs] == [
        ("min.insync.replicas", "1", 3)
    ]


# fmt: off
NOT_DESCRIBED = {
    (TOPIC, "nowhere"):  ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    (TOPIC, "bad name"): ErrorCode.INVALID_TOPIC_EXCEPTION,
    (BROKER, "2"):       ErrorCode.INVALID_REQUEST,
    (BROKER, "one"):     ErrorCode.INVALID_REQUEST,
    (LOGGER, ""):        ErrorCode.INVALID_REQUEST,
    (LOGGER, "x"):       ErrorCode.INVALID_REQUEST,
    (LOGGER, "7"):       ErrorCode.INVALID_REQUEST,
    (METRICS, ""):       ErrorCode.INVALID_REQUEST,
    (GROUP, ""):         ErrorCode.INVALID_REQUEST,
    (0, "x"):            ErrorCode.INVALID_REQUEST,
}
# fmt: on


@pytest.mark.parametrize("resource", NOT_DESCRIBED)
def test_not_described(resource: tuple[int, str]) -> None:
    result = describe(Harness(), *resource)
    assert (result.error_code, result.configs) == (NOT_DESCRIBED[resource], ())


@pytest.mark.parametrize("version", range(1, 5))
def test_every_version_of_describe(version: int) -> None:
    harness = Harness()
    harness.create("t")
    (entry,) = describe(harness, TOPIC, "t", "cleanup.policy", version=version).configs
    assert (entry.value, entry.config_type) == ("delete", 7 if version >= 3 else 0)


def test_loggers_client_metrics_and_unknown_keys_are_described() -> None:
    """As a 4.2.1 does: no synonyms, and the value of an unknown key is hidden."""
    harness = Harness(super_users="User:a")
    logging.getLogger("kohort.broker").setLevel(logging.WARNING)
    loggers = {entry.name: entry for entry in describe(harness, LOGGER, "1").configs}
    logging.getLogger("kohort.broker").setLevel(logging.NOTSET)
    entry = loggers["kohort.broker"]
    assert (entry.value, entry.config_source, entry.config_type, entry.read_only) == ("WARN", 6, 0, False)
    assert "root" in loggers
    metrics = describe(harness, METRICS, "any").configs
    assert [(entry.name, entry.value, entry.config_source, entry.config_type) for entry in metrics] == [
        ("interval.ms", "300000", 5, 3),
        ("match", "", 5, 7),
        ("metrics", "", 5, 7),
    ]
    (entry,) = describe(harness, BROKER, "1", "super.users").configs
    assert (entry.value, entry.is_sensitive, entry.read_only, entry.config_source) == (None, True, True, 4)


def test_a_resource_that_is_given_repeatedly_is_described_once() -> None:
    harness = Harness()
    harness.create("t")
    names = [
        (BROKER, "1", None),
        (BROKER, "+01", None),
        (TOPIC, "t", ("retention.ms",)),
        (TOPIC, "t", ("cleanup.policy",)),
    ]
    resources = [
        m.DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        for kind, name, keys in names * 2
    ]
    response = harness.ask(ApiKey.DESCRIBE_CONFIGS, m.DescribeConfigsRequest(resources=resources))
    assert [(result.resource_name, len(result.configs)) for result in response.results[1:]] == [("t", 1), ("t", 1)]


def test_a_resource_that_is_given_many_times_takes_few_steps() -> None:
    harness = Harness()
    resources = [m.DescribeConfigsResource(resource_type=BROKER, resource_name="1")] * (10 * HANDLER_STEP)
    request = m.DescribeConfigsRequest(resources=resources)
    steps = harness.broker.handlers[ApiKey.DESCRIBE_CONFIGS](request, Asker(4), lambda _: None)
    assert len(list(steps)) <= 11


# IncrementalAlterConfigs

SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(
    harness: Harness,
    *changes: tuple[str, int, str | None],
    name: str = "t",
    kind: int = TOPIC,
    at: int = 1,
    **what: Any,
) -> int:
    configs = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=configs
    )
    request = m.IncrementalAlterConfigsRequest(resources=[resource], **what)
    return int(harness.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, at=at).responses[0].error_code)


# fmt: off
ALTERED: dict[tuple[tuple[str, int, str | None], ...], tuple[int, dict[str, str]]] = {  # of a topic with retention.ms=5
    (("retention.ms", SET, "6"),):                       (0, {"retention.ms": "6"}),
    (("retention.ms", DELETE, None),):                   (0, {}),
    (("segment.ms", DELETE, None),):                     (0, {"retention.ms": "5"}),
    (("cleanup.policy", APPEND, "compact"),):            (0, {"retention.ms": "5", "cleanup.policy": "delete,compact"}),
    (("cleanup.policy", APPEND, "delete"),):             (0, {"retention.ms": "5", "cleanup.policy": "delete"}),
    (("cleanup.policy", SUBTRACT, "delete"),):           (0, {"retention.ms": "5", "cleanup.policy": ""}),
    (("leader.replication.throttled.replicas", APPEND, "2:2,2:2, 3:3,2:2"),):
        (0, {"retention.ms": "5", "leader.replication.throttled.replicas": "2:2,3:3"}),
    (("retention.ms", APPEND, "6"),):                    (ErrorCode.INVALID_CONFIG, {"retention.ms": "5"}),
    (("retention.ms", SET, "x"),):                       (ErrorCode.INVALID_CONFIG, {"retention.ms": "5"}),
    (("retention.ms", SET, None),):                      (ErrorCode.INVALID_REQUEST, {"retention.ms": "5"}),
    (("no.such.key", SET, "1"),):                        (ErrorCode.INVALID_CONFIG, {"retention.ms": "5"}),
    (("retention.ms", 9, "1"),):                         (ErrorCode.UNKNOWN_SERVER_ERROR, {"retention.ms": "5"}),
    (("retention.ms", SET, "6"), ("segment.ms", SET, "x")):   (ErrorCode.INVALID_CONFIG, {"retention.ms": "5"}),
    (("retention.ms", SET, "6"), ("retention.ms", SET, "7")): (ErrorCode.INVALID_REQUEST, {"retention.ms": "5"}),
}
# fmt: on


@pytest.mark.parametrize("changes", ALTERED)
def test_alter(changes: tuple[tuple[str, int, str | None], ...]) -> None:
    harness = Harness()
    harness.create("t", retention_ms="5")
    code, configs = ALTERED[changes]
    assert alter(harness, *changes) == code
    assert harness.broker.catalog.topic("t").configs == configs  # type: ignore[union-attr]


def test_an_element_is_subtracted_once() -> None:
    """Answers of Apache Kafka 4.2.1."""
    harness = Harness()
    harness.create("t")
    key = "leader.replication.throttled.replicas"
    for operation, value, expected in (
        (SET, "1:1,1:1,2:2", "1:1,1:1,2:2"),
        (SUBTRACT, "1:1", "1:1,2:2"),
        (APPEND, "3:3,3:3,1:1", "1:1,2:2,3:3"),
        (SUBTRACT, "1:1,1:1,2:2", "3:3"),
    ):
        assert alter(harness, (key, operation, value)) == 0
        assert harness.broker.catalog.topic("t").configs == {key: expected}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "name", "key"),
    [(TOPIC, "t", "follower.replication.throttled.replicas"), (BROKER, "1", "ssl.cipher.suites")],
)
def test_a_list_does_not_grow_beyond_the_longest_value(kind: int, name: str, key: str) -> None:
    """Answers of Apache Kafka 4.2.1."""
    harness = Harness()
    harness.create("t")
    first, second, third = (",".join(f"{each}:{number}" for number in range(3_500)) for each in (11, 12, 13))
    assert alter(harness, (key, SET, first), kind=kind, name=name) == 0
    assert alter(harness, (key, APPEND, second), kind=kind, name=name) == ErrorCode.INVALID_CONFIG
    assert alter(harness, (key, SUBTRACT, third), kind=kind, name=name) == 0
    assert shown(describe(harness, kind, name), key)[0] == first


def test_alteration_reaches_the_log() -> None:
    harness = Harness()
    harness.create("t", 2)
    harness.write("t", b"x" * 100)
    alter(harness, ("max.message.bytes", SET, "50"))
    for partition in (0, 1):
        (answer,) = harness.produce("t", {partition: batch(b"x" * 100)})
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_validate_only_alters_nothing() -> None:
    harness = Harness()
    harness.create("t")
    assert alter(harness, ("retention.ms", SET, "6"), validate_only=True) == 0
    assert harness.broker.catalog.topic("t").configs == {}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("kind", "name", "code"), [(TOPIC, "x", 3), (BROKER, "9", 42), (LOGGER, "1", 40), (METRICS, "x", 42), (0, "x", 42)]
)
def test_not_alterable(kind: int, name: str, code: int) -> None:
    assert alter(Harness(), ("retention.ms", SET, "6"), kind=kind, name=name) == code


def test_alter_configs_replaces_all() -> None:
    harness = Harness()
    harness.create("t", retention_ms="5", segment_ms="6")
    for value, code, configs in (
        ("7", 0, {"retention.ms": "7"}),
        ("x", ErrorCode.INVALID_CONFIG, {"retention.ms": "7"}),
    ):
        config = m.AlterConfigsRequestAlterableConfig(name="retention.ms", value=value)
        resource = m.AlterConfigsRequestAlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[config])
        for version in range(3):
            request = m.AlterConfigsRequest(resources=[resource])
            (answer,) = harness.ask(ApiKey.ALTER_CONFIGS, request, version=version).responses
            assert answer.error_code == code
            assert harness.broker.catalog.topic("t").configs == configs  # type: ignore[union-attr]


# What a later release has.


def test_a_stored_configuration_that_the_release_lacks_keeps_its_effect_and_is_refused_with_the_next_change() -> None:
    key = "max.decompressed.message.bytes"
    harness = Harness(release="4.4.0")
    harness.create("t", max_decompressed_message_bytes="77")
    older = Harness(store=harness.store, node=harness.node, release="4.2.1")
    assert key not in {entry.name for entry in describe(older, TOPIC, "t").configs}
    topic = older.broker.catalog.topic("t")
    assert topic is not None
    assert older.broker.configs.value(key, topic.configs).value == "77"
    with pytest.raises(ConfigError, match=f"^Unknown topic config name: {key}$"):
        older.broker.configs.validate({**topic.configs, "retention.ms": "1"})
    newer = Harness(store=harness.store, node=harness.node, release="4.4.0")
    assert {entry.name: entry.value for entry in describe(newer, TOPIC, "t").configs}[key] == "77"
