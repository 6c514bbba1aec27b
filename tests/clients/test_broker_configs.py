"""Configurations of brokers, loggers and client metrics that clients change, and that are there after the broker was killed."""

import re
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as KafkaPythonConfigResource

from kohort.testing.served import ServedKohort
from tests.clients.conftest import new_topic
from tests.clients.java_tools import JavaTools
from tests.clients.waiting import PATIENCE_S
from tests.conftest import NIGHTLY

CONFIGS = "org.apache.kafka.tools.ConfigCommand"
LIMIT = "message.max.bytes"


def test_a_limit_that_librdkafka_sets_holds_at_once_and_after_a_kill(own_broker: Callable[[], ServedKohort]) -> None:
    broker = own_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic = new_topic(broker.bootstrap, 1, {})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    assert produced(producer, topic) is None
    alter(admin, "1", LIMIT, "500", AlterConfigOpType.SET)
    assert produced(producer, topic) == KafkaError.MSG_SIZE_TOO_LARGE
    broker.kill()
    broker.start()
    assert produced(producer, topic) == KafkaError.MSG_SIZE_TOO_LARGE
    entry = described(admin, "1")[LIMIT]
    assert (entry.value, entry.source, entry.is_read_only) == ("500", ConfigSource.DYNAMIC_BROKER_CONFIG.value, False)
    assert {name: synonym.value for name, synonym in entry.synonyms.items()} == {LIMIT: "1048588"}
    alter(admin, "1", LIMIT, None, AlterConfigOpType.DELETE)
    assert produced(producer, topic) is None
    with pytest.raises(KafkaException) as refused:
        alter(admin, "1", "node.id", "5", AlterConfigOpType.SET)
    assert "Cannot update these configs dynamically: [node.id]" in refused.value.args[0].str()
    broker.stop()


def alter(admin: AdminClient, name: str, key: str, value: str | None, operation: AlterConfigOpType) -> None:
    entry = ConfigEntry(key, value, incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, name, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)


def described(admin: AdminClient, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(ResourceType.BROKER, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(PATIENCE_S)
    return found


def produced(producer: Producer, topic: str) -> int | None:
    """The code with which a record of 1000 bytes was refused; None if it was not."""
    codes: list[int | None] = []
    producer.produce(topic, b"x" * 1000, on_delivery=lambda error, _: codes.append(error and error.code()))
    producer.flush(PATIENCE_S)
    (code,) = codes
    return code


def test_kafka_python_changes_brokers_loggers_and_client_metrics(own_broker: Callable[[], ServedKohort]) -> None:
    broker = own_broker()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    changes = {
        ("BROKER", "1"): {"num.io.threads": "9"},
        ("BROKER_LOGGER", "1"): {"kohort.broker": "DEBUG"},
        ("CLIENT_METRICS", "mine"): {"metrics": "*"},
    }
    resources = [KafkaPythonConfigResource(kind, name, configs) for (kind, name), configs in changes.items()]
    admin.alter_configs(resources)
    for (kind, name), configs in changes.items():
        found = admin.describe_configs([KafkaPythonConfigResource(kind, name, list(configs))])
        (key,) = configs
        assert configs[key] in str(found), found
    admin.close()
    broker.stop()


@NIGHTLY
def test_kafka_configs(java: JavaTools, own_broker: Callable[[], ServedKohort]) -> None:
    broker = own_broker()

    def run(kind: str, name: str, *words: str, codes: tuple[int, ...] = (0,)) -> str:
        entity = ("--entity-name", name) if name else ("--entity-default",)
        return java.run(
            CONFIGS, "--bootstrap-server", broker.bootstrap, "--entity-type", kind, *entity, *words, codes=codes
        )

    run(
        "brokers",
        "1",
        "--alter",
        "--add-config",
        "log.cleaner.threads=2,listener.name.plaintext.ssl.keystore.location=/x",
    )
    run("brokers", "", "--alter", "--add-config", "log.cleaner.threads=1,log.cleanup.policy=[compact,delete]")
    run("client-metrics", "mine", "--alter", "--add-config", "metrics=[a.,b.],interval.ms=1000")
    run("broker-loggers", "1", "--alter", "--add-config", "kohort.broker=DEBUG")
    assert "kohort.broker=DEBUG" in run("broker-loggers", "1", "--describe")
    broker.kill()
    broker.start()
    of_broker = dict(re.findall(r"^\s+(\S+?)=(\S*) sensitive=", run("brokers", "1", "--describe"), re.MULTILINE))
    assert of_broker["log.cleaner.threads"] == "2"
    assert of_broker["listener.name.plaintext.ssl.keystore.location"] == "/x"
    of_all = run("brokers", "", "--describe")
    assert "log.cleaner.threads=1" in of_all
    assert "log.cleanup.policy=compact,delete" in of_all
    metrics = run("client-metrics", "mine", "--describe")
    assert "interval.ms=1000" in metrics
    assert "metrics=a.,b." in metrics
    run("brokers", "1", "--alter", "--delete-config", "log.cleaner.threads")
    run("brokers", "1", "--alter", "--add-config", "node.id=2", codes=(1,))
    assert "log.cleaner.threads" not in run("brokers", "1", "--describe")
    broker.stop()
