"""A real client with a password, over an encrypted connection: `kohort serve --user ... --tls`."""

import time
from pathlib import Path
from urllib.request import urlopen

from confluent_kafka import Consumer, Message, Producer

from kohort.testing.served import ServedKohort
from tests.clients.waiting import PATIENCE_S

OPTIONS = ("--user", "alice:alice-secret", "--tls", "--metrics-port", "0")
QUICK = {"group.initial.rebalance.delay.ms": "0"}
SESSION_S = 1.5
"""A client may authenticate itself again after a second at the earliest."""


def client(broker: ServedKohort, mechanism: str, password: str = "alice-secret") -> dict[str, str]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": f"{broker.certificates}/ca.pem",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    }


def metrics_of(broker: ServedKohort) -> dict[str, float]:
    assert broker.metrics_port is not None
    with urlopen(f"http://127.0.0.1:{broker.metrics_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def produce(settings: dict[str, str], topic: str, seconds: float) -> list[str]:
    """Produce for some time, and return the values that were acknowledged."""
    delivered: list[str] = []
    failed: list[str] = []

    def on_delivery(error: object, message: Message) -> None:
        if error is not None:
            failed.append(str(error))
        delivered.append((message.value() or b"").decode())

    producer = Producer(settings)
    ends_at, number = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at or number < 10:
        producer.produce(topic, str(number), partition=0, on_delivery=on_delivery)
        producer.poll(0.01)
        number += 1
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []
    assert sorted(map(int, delivered)) == list(range(number))
    return [str(each) for each in range(number)]


def test_a_user_produces_and_consumes_with_every_mechanism(tmp_path: Path) -> None:
    """The session of one mechanism ends: no record is lost or doubled while the client authenticates itself again."""
    session = {"listener.name.sasl_ssl.scram-sha-256.connections.max.reauth.ms": str(int(SESSION_S * 1_000))}
    with ServedKohort(tmp_path, QUICK | session, options=OPTIONS) as broker:
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            settings = client(broker, mechanism)
            topic = mechanism.lower()
            written = produce(settings, topic, 2 * SESSION_S if mechanism == "SCRAM-SHA-256" else 0)
            consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
            consumer.subscribe([topic])
            found = [consumer.poll(PATIENCE_S) for _ in written]
            assert [(each.value() or b"").decode() for each in found if each is not None] == written
            consumer.commit(asynchronous=False)
            consumer.close()
        counts = metrics_of(broker)
        assert counts['kohort_authentication_success_total{session="renewed"}'] > 0
        assert counts['kohort_authentication_failure_total{session="renewed"}'] == 0
        assert counts["kohort_expired_sessions_total"] == 0
        assert "alice-secret" not in broker.log.read_text()
