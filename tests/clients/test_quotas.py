"""Quotas, levels of features and client telemetry, as clients and Apache Kafka's tools use them."""

from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from kohort.client import Client
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.conftest import Broker
from tests.clients.java_tools import JavaTools
from tests.clients.waiting import PATIENCE_S, wait_until
from tests.conftest import NIGHTLY

FEATURES = "org.apache.kafka.tools.FeatureCommand"
CONFIGS = "org.apache.kafka.tools.ConfigCommand"
CLIENT_METRICS = "org.apache.kafka.tools.ClientMetricsCommand"

Run = Callable[..., str]


@pytest.fixture
def run(broker: Broker, java: JavaTools) -> Run:
    """Runs a tool against the broker."""

    def run(main_class: str, *arguments: str) -> str:
        return java.run(main_class, "--bootstrap-server", broker.bootstrap, *arguments)

    return run


def test_librdkafka_is_told_that_it_is_throttled(broker: Broker) -> None:
    client_id = f"client-{uuid4().hex[:8]}"
    entity = m.AlterClientQuotasRequestEntityData(entity_type="client-id", entity_name=client_id)

    def alter(value: float, *, remove: bool) -> None:
        op = m.AlterClientQuotasRequestOpData(key="producer_byte_rate", value=value, remove=remove)
        entry = m.AlterClientQuotasRequestEntryData(entity=[entity], ops=[op])
        request = m.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        with Client(broker.bootstrap) as client:
            assert client.send(ApiKey.ALTER_CLIENT_QUOTAS, request).entries[0].error_code == 0

    alter(10_000.0, remove=False)
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "client.id": client_id,
            "linger.ms": 0,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    topic = f"topic-{uuid4().hex[:8]}"
    producer.produce(topic, b"x" * 101_000)
    assert producer.flush(PATIENCE_S) == 0
    wait_until(lambda: producer.poll(0.01) is not None and throttled, what="a throttled request")
    assert 0 < throttled[0] < 1
    alter(0.0, remove=True)


def test_scram_credentials_of_an_admin(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    user = f"user-{uuid4().hex[:8]}"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8_192)
    upsertion = UserScramCredentialUpsertion(user, info, b"password", b"salt")
    assert admin.alter_user_scram_credentials([upsertion])[user].result(PATIENCE_S) is None
    found = admin.describe_user_scram_credentials([user])[user].result(PATIENCE_S)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8_192)
    ]
    deletion = UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)
    assert admin.alter_user_scram_credentials([deletion])[user].result(PATIENCE_S) is None


def test_kafka_features_describes_them(run: Run) -> None:
    lines = [" ".join(line.split()) for line in run(FEATURES, "describe").splitlines()]
    assert any("metadata.version" in line and "FinalizedVersionLevel: 4.4-IV2" in line for line in lines)
    assert any("transaction.version" in line and "FinalizedVersionLevel: 2" in line for line in lines)


@NIGHTLY
def test_kafka_features_changes_a_level(tmp_path: Path, java: JavaTools) -> None:
    with ServedKohort(tmp_path) as served:
        bootstrap = ("--bootstrap-server", f"127.0.0.1:{served.port}")
        assert "was downgraded to 0" in java.run(
            FEATURES, *bootstrap, "downgrade", "--feature", "eligible.leader.replicas.version=0"
        )
        refused = java.run(FEATURES, *bootstrap, "upgrade", "--feature", "transaction.version=9", codes=(1,))
        assert "transaction.version" in refused or not refused
        shown = [" ".join(line.split()) for line in java.run(FEATURES, *bootstrap, "describe").splitlines()]
        (line,) = (each for each in shown if "eligible.leader.replicas.version" in each)
        assert "SupportedMinVersion: 0 SupportedMaxVersion: 1 FinalizedVersionLevel: 0" in line


@NIGHTLY
def test_kafka_configs_sets_quotas_of_users(run: Run) -> None:
    user = f"user-{uuid4().hex[:8]}"
    entity = ("--entity-type", "users", "--entity-name", user)
    run(CONFIGS, "--alter", *entity, "--add-config", "producer_byte_rate=1024,request_percentage=50")
    shown = run(CONFIGS, "--describe", *entity)
    assert "producer_byte_rate=1024.0" in shown
    assert "request_percentage=50.0" in shown
    run(CONFIGS, "--alter", *entity, "--delete-config", "producer_byte_rate,request_percentage")
    assert "producer_byte_rate" not in run(CONFIGS, "--describe", *entity)


@NIGHTLY
def test_kafka_client_metrics_subscribes_librdkafka(broker: Broker, run: Run) -> None:
    name = f"subscription-{uuid4().hex[:8]}"
    run(CLIENT_METRICS, "--alter", "--name", name, "--metrics", "org.apache.kafka.consumer.", "--interval", "60000")
    assert name in run(CLIENT_METRICS, "--list")
    assert "org.apache.kafka.consumer." in run(CLIENT_METRICS, "--describe", "--name", name)
    run(CLIENT_METRICS, "--delete", "--name", name)
    assert name not in run(CLIENT_METRICS, "--list")


def test_librdkafka_pushes_the_metrics_to_which_it_is_subscribed(tmp_path: Path) -> None:
    change = m.IncrementalAlterConfigsRequestAlterableConfig
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=16,
        resource_name="all",
        configs=[
            change(name="metrics", config_operation=0, value="*"),
            change(name="interval.ms", config_operation=0, value="100"),
        ],
    )
    with ServedKohort(tmp_path) as served:
        bootstrap = f"127.0.0.1:{served.port}"
        with Client(bootstrap) as client:
            request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            assert client.send(ApiKey.INCREMENTAL_ALTER_CONFIGS, request).responses[0].error_code == 0
        producer = Producer({"bootstrap.servers": bootstrap, "client.id": "pusher", "enable.metrics.push": True})
        producer.produce("t", b"x")
        assert producer.flush(PATIENCE_S) == 0
        wait_until(lambda: "telemetry.received" in served.log.read_text(), what="a push")
        line = next(line for line in served.log.read_text().splitlines() if "telemetry.received" in line)
        assert "client_id='pusher'" in line
        assert " points=0 " not in line
