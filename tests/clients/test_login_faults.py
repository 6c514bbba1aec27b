"""Unmodified clients meet faults in their login: they tell the application, or try again."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, Producer
from py4j.protocol import Py4JJavaError

from kohort.testing import Broker
from tests.clients.jvm import Jvm
from tests.clients.test_fault_reactions import QUICK, values
from tests.clients.test_java_fault_reactions import Java, raises
from tests.clients.waiting import PATIENCE_S, wait_until

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
LISTENER = "listener.name.sasl_plaintext.plain."
SECURED = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    f"{LISTENER}sasl.jaas.config": f'{PLAIN_MODULE} user_alice="secret";',
}
SETUP_S = 1
"""The shortest time that librdkafka allows for a login."""


@pytest.fixture(scope="module")
def kit() -> Iterator[Broker]:
    with Broker(SECURED) as broker:
        yield broker


class Writer:
    """A producer of librdkafka, with the errors that it has told."""

    def __init__(self, kit: Broker, **more: Any) -> None:
        self.errors: list[int] = []
        self._delivered: list[KafkaError | None] = []
        settings = {
            "bootstrap.servers": kit.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "socket.connection.setup.timeout.ms": SETUP_S * 1_000,
            "linger.ms": 0,
            "error_cb": lambda error: self.errors.append(error.code()),
            **QUICK,
        }
        self._producer = Producer(settings | {name.replace("_", "."): value for name, value in more.items()})

    def send(self, topic: str, value: str) -> None:
        self._producer.produce(topic, value, on_delivery=lambda error, _message: self._delivered.append(error))

    def is_delivered(self, count: int = 1) -> bool:
        self._producer.poll(0.02)
        return self._delivered == [None] * count

    def has_told(self, code: int) -> bool:
        self._producer.poll(0.02)
        return code in self.errors


def test_librdkafka_tells_of_a_password_that_was_changed_and_goes_on_when_it_is_right(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED", message="rotated", always=True)
    writer = Writer(kit)
    writer.send(topic, "x")
    wait_until(lambda: writer.has_told(KafkaError._AUTHENTICATION), what="librdkafka tells the application")
    assert not writer.is_delivered()
    fault.remove()
    wait_until(writer.is_delivered, what="the record is delivered")
    assert fault.hits >= 1
    assert values(kit, topic) == ["x"]


def test_librdkafka_gives_up_a_login_without_an_answer_and_tries_again(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="SaslAuthenticate", silence=True)
    writer = Writer(kit, client_id=topic)
    writer.send(topic, "x")
    wait_until(writer.is_delivered, what="the record is delivered")
    assert fault.hits == 1
    asked = kit.requests(api="SaslAuthenticate", client_id=topic)
    assert [each["outcome"] for each in asked][:2] == ["unanswered", "answered"]


def test_librdkafka_logs_in_again_where_the_answer_was_lost(kit: Broker, topic: str) -> None:
    fault = kit.fault(api="SaslAuthenticate", disconnect="after")
    writer = Writer(kit)
    writer.send(topic, "x")
    wait_until(writer.is_delivered, what="the record is delivered")
    assert fault.hits == 1


def test_aiokafka_gives_its_start_up_when_the_login_fails(kit: Broker, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        fault = kit.fault(api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED")
        writer = AIOKafkaProducer(
            bootstrap_servers=kit.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password="secret",
        )
        try:
            with pytest.raises(KafkaConnectionError):
                await writer.start()
        finally:
            await writer.stop()
        assert fault.hits == 1

    asyncio.run(story())
    assert "SaslAuthenticationFailed" in caplog.text


def is_sent(java: Java, writer: Any) -> bool:
    with suppress(Py4JJavaError):
        java.send(writer, "y").get()
        return True
    return False


def test_java_tells_the_application_the_words_of_the_broker(jvm: Jvm, kit: Broker, topic: str) -> None:
    fault = kit.fault(api="SaslAuthenticate", error="SASL_AUTHENTICATION_FAILED", message="rotated", always=True)
    java = Java(jvm, kit, topic)
    writer = java.producer(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        enable_idempotence="false",
        sasl_jaas_config=f'{PLAIN_MODULE} username="alice" password="secret";',
    )
    with raises("SaslAuthenticationException: rotated"):
        java.send(writer, "x").get()
    fault.remove()
    # It tells of a failure that is known already once more.
    wait_until(lambda: is_sent(java, writer), what="the record is acknowledged")
    java.close()
    assert values(kit, topic) == ["y"]


def test_librdkafka_survives_a_lost_answer_when_its_user_is_authenticated_again() -> None:
    """Before the login a request has no user, so a fault with one hits the next authentication of the connection."""
    with Broker(SECURED | {f"{LISTENER}connections.max.reauth.ms": 1_000}) as kit:
        kit.control_client.post("topics", body={"name": "t", "partitions": 1})
        writer = Writer(kit)
        writer.send("t", "x")
        wait_until(writer.is_delivered, what="the first record is delivered")
        fault = kit.fault(api="SaslAuthenticate", principal="User:alice", disconnect="after")
        fault.wait(1, timeout=PATIENCE_S)
        writer.send("t", "y")
        wait_until(lambda: writer.is_delivered(2), what="the second record is delivered")
        assert values(kit, "t") == ["x", "y"]
