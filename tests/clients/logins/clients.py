"""
Clients that log in, each with the same verbs: send a record, read records in a group and commit, and a transaction.

What a broker refuses is `RefusedError` with the client's words.
"""

import asyncio
import json
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import aiokafka.errors
import kafka.errors
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokenProvider
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokenProvider
from py4j.protocol import Py4JJavaError

from tests.clients.jvm import Jvm
from tests.clients.logins.login import OAUTHBEARER, Login
from tests.clients.secured import client_properties
from tests.clients.waiting import PATIENCE_S, wait_until

POLL_S = 0.1
REFUSED_S = 20
"""A client that cannot log in tries again for as long; then it says why not."""
KAFKA_PYTHON_REFUSED_S = 3
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class RefusedError(Exception):
    """The client reported that the broker has refused."""


class LoginClient(Protocol):
    """A client with an open producer. Every verb may raise `RefusedError`."""

    def send(self, topic: str, value: str) -> None:
        """Returns when the record is acknowledged."""

    def read(self, topic: str, group: str, count: int) -> list[str]:
        """Values in the order in which a new group reads them; their offsets are committed."""

    def transact(self, topic: str, transactional_id: str, value: str) -> None:
        """Write a record in a transaction of its own."""

    def close(self) -> None: ...


class Librdkafka:
    """confluent-kafka."""

    def __init__(self, login: Login) -> None:
        self._errors: list[KafkaError] = []
        configs: dict[str, Any] = {
            "bootstrap.servers": login.bootstrap,
            "security.protocol": login.protocol,
            "log_level": 0,
            "error_cb": self._errors.append,
        }
        if login.is_tls:
            configs |= {"ssl.ca.location": str(login.authority), "ssl.certificate.location": str(login.certificate)}
            configs["ssl.key.location"] = str(login.certificate)
        else:
            configs["sasl.mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            # A client that knows that its token has ended does not try it.
            configs["oauth_cb"] = lambda _: (login.token(), max(login.ends_s, 600 + login.ends_s))
        elif not login.is_tls:
            configs |= {"sasl.username": login.user, "sasl.password": login.password}
        self._configs = configs
        self._producer = Producer(
            configs | {"message.timeout.ms": REFUSED_S * 1_000, "linger.ms": 0, "enable.idempotence": True}
        )

    def send(self, topic: str, value: str) -> None:
        refused: list[KafkaError] = []
        self._producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None)
        wait_until(lambda: not self._producer.flush(POLL_S) or self._failed(), what="the record is acknowledged")
        if refused:
            raise RefusedError(str(refused[0]))
        if self._failed():
            raise RefusedError(str(self._failed()))

    def read(self, topic: str, group: str, count: int) -> list[str]:
        consumer = Consumer(
            self._configs | {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        )
        consumer.subscribe([topic])
        found: list[str] = []

        def has_all() -> bool:
            for message in consumer.consume(count, POLL_S):
                if message.error():
                    raise RefusedError(str(message.error()))
                found.append(message.value().decode())
            return len(found) >= count or self._failed() is not None

        wait_until(has_all, what=lambda: f"librdkafka reads {count} records; it has {found}")
        if self._failed() is not None:
            raise RefusedError(str(self._failed()))
        consumer.commit(asynchronous=False)
        consumer.close()
        return found

    def transact(self, topic: str, transactional_id: str, value: str) -> None:
        producer = Producer(self._configs | {"transactional.id": transactional_id})
        try:
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
            producer.produce(topic, value)
            producer.commit_transaction(PATIENCE_S)
        except KafkaException as exc:
            raise RefusedError(str(exc)) from exc

    def close(self) -> None:
        """A producer of librdkafka ends when it is collected."""

    def _failed(self) -> KafkaError | None:
        return next((error for error in self._errors if error.code() == KafkaError._AUTHENTICATION), None)


class _AiokafkaTokens(AiokafkaTokenProvider):  # type: ignore[misc]
    def __init__(self, login: Login) -> None:
        self._login = login

    async def token(self) -> str:
        return self._login.token()


class Aiokafka:
    """aiokafka, on an event loop in a thread of its own."""

    def __init__(self, login: Login) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._configs: dict[str, Any] = {"bootstrap_servers": login.bootstrap, "security_protocol": login.protocol}
        if login.is_tls:
            self._configs["ssl_context"] = login.context()
        else:
            self._configs["sasl_mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            self._configs["sasl_oauth_token_provider"] = _AiokafkaTokens(login)
        elif not login.is_tls:
            self._configs |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        self._producer: AIOKafkaProducer | None = None

    async def _started(self) -> AIOKafkaProducer:
        if self._producer is None:
            producer = AIOKafkaProducer(enable_idempotence=True, **self._configs)
            await producer.start()
            self._producer = producer
        return self._producer

    def send(self, topic: str, value: str) -> None:
        async def send() -> None:
            await (await self._started()).send_and_wait(topic, value.encode())

        self._run(send())

    def read(self, topic: str, group: str, count: int) -> list[str]:
        async def read() -> list[str]:
            consumer = AIOKafkaConsumer(
                topic, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False, **self._configs
            )
            async with consumer:
                found = [(await consumer.getone()).value.decode() for _ in range(count)]
                await consumer.commit()
            return found

        found: list[str] = self._run(read())
        return found

    def transact(self, topic: str, transactional_id: str, value: str) -> None:
        async def transact() -> None:
            producer = AIOKafkaProducer(transactional_id=transactional_id, **self._configs)
            async with producer, producer.transaction():
                await producer.send_and_wait(topic, value.encode())

        self._run(transact())

    def close(self) -> None:
        async def stop() -> None:
            if self._producer is not None:
                await self._producer.stop()

        self._run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)
        except aiokafka.errors.KafkaError as exc:
            raise RefusedError(f"{type(exc).__name__} {exc}") from exc


class _KafkaPythonTokens(KafkaPythonTokenProvider):  # type: ignore[misc]
    def __init__(self, login: Login) -> None:
        self._login = login

    def token(self) -> str:
        return self._login.token()


class KafkaPython:
    """kafka-python."""

    def __init__(self, login: Login) -> None:
        self._configs: dict[str, Any] = {
            "bootstrap_servers": login.bootstrap,
            "security_protocol": login.protocol,
            "bootstrap_timeout_ms": KAFKA_PYTHON_REFUSED_S * 1_000,
        }
        if login.is_tls:
            self._configs["ssl_context"] = login.context()
        else:
            self._configs["sasl_mechanism"] = login.mechanism
        if login.mechanism == OAUTHBEARER:
            self._configs["sasl_oauth_token_provider"] = _KafkaPythonTokens(login)
        elif not login.is_tls:
            self._configs |= {"sasl_plain_username": login.user, "sasl_plain_password": login.password}
        self._producer: KafkaProducer | None = None

    def send(self, topic: str, value: str) -> None:
        with self._translated():
            if self._producer is None:
                self._producer = KafkaProducer(enable_idempotence=True, **self._configs)
            self._producer.send(topic, value.encode()).get(PATIENCE_S)

    def read(self, topic: str, group: str, count: int) -> list[str]:
        found: list[str] = []
        with self._translated():
            consumer = KafkaConsumer(
                topic,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                metadata_max_age_ms=1_000,  # by default it can wait five minutes for a leader that it has not learnt
                **self._configs,
            )

            # One long poll, which returns at the first record. kafka-python 3.0.12 learns the partitions after its first join,
            # and joins again. If a poll times out within that join, it drops the assignment and never asks again.
            ends_s = time.monotonic() + PATIENCE_S
            while len(found) < count and (left_s := ends_s - time.monotonic()) > 0:
                for messages in consumer.poll(timeout_ms=int(left_s * 1_000)).values():
                    found.extend(message.value.decode() for message in messages)
            assert len(found) >= count, f"kafka-python reads {count} records; it has {found}"
            consumer.commit()
            consumer.close()
        return found

    def transact(self, topic: str, transactional_id: str, value: str) -> None:
        with self._translated():
            producer = KafkaProducer(transactional_id=transactional_id, **self._configs)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send(topic, value.encode()).get(PATIENCE_S)
            producer.commit_transaction()
            producer.close()

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()

    @staticmethod
    @contextmanager
    def _translated() -> Iterator[None]:
        try:
            yield
        except kafka.errors.KafkaError as exc:
            raise RefusedError(f"{type(exc).__name__} {exc}") from exc


class Java:
    """Apache Kafka's own clients, in a virtual machine that several of them share."""

    def __init__(self, jvm: Jvm, login: Login) -> None:
        self._classes = jvm.classes
        if login.is_tls:
            own = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(login.authority)}
            own |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.certificate)}
            own["security.protocol"] = "SSL"
        elif login.mechanism == OAUTHBEARER:
            # The module makes its token itself, and does not make one that has ended.
            life = f'unsecuredLoginNumberClaim_exp="{int(login.ends_s)}" ' if login.life_s < 0 else ""
            jaas = f'{OAUTH_MODULE} unsecuredLoginStringClaim_sub="{login.user}" {life};'
            own = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": OAUTHBEARER, "sasl.jaas.config": jaas}
        else:
            own = client_properties(login.user, login.password, login.mechanism)
        self._configs = own | {"bootstrap.servers": login.bootstrap, "max.block.ms": str(REFUSED_S * 1_000)}
        self._producer: Any = None

    def _new_producer(self, **configs: str) -> Any:
        producer = self._classes.org.apache.kafka.clients.producer.KafkaProducer
        texts = self._classes.org.apache.kafka.common.serialization
        return producer(self._properties(**configs), texts.StringSerializer(), texts.StringSerializer())

    def _properties(self, **configs: str) -> Any:
        properties = self._classes.java.util.Properties()
        for name, text in (self._configs | {key.replace("_", "."): value for key, value in configs.items()}).items():
            properties.setProperty(name, text)
        return properties

    def _record(self, topic: str, value: str) -> Any:
        return self._classes.org.apache.kafka.clients.producer.ProducerRecord(topic, value)

    def send(self, topic: str, value: str) -> None:
        with self._translated():
            if self._producer is None:
                self._producer = self._new_producer()
            self._producer.send(self._record(topic, value)).get()

    def read(self, topic: str, group: str, count: int) -> list[str]:
        found: list[str] = []
        texts = self._classes.org.apache.kafka.common.serialization
        with self._translated():
            properties = self._properties(group_id=group, auto_offset_reset="earliest", enable_auto_commit="false")
            consumer = self._classes.org.apache.kafka.clients.consumer.KafkaConsumer(
                properties, texts.StringDeserializer(), texts.StringDeserializer()
            )
            consumer.subscribe(self._classes.java.util.List.of(topic))
            poll = self._classes.java.time.Duration.ofMillis(int(POLL_S * 1_000))

            def has_all() -> bool:
                records = consumer.poll(poll).iterator()
                while records.hasNext():
                    found.append(str(records.next().value()))
                return len(found) >= count

            try:
                wait_until(has_all, what=lambda: f"Java reads {count} records; it has {found}")
                consumer.commitSync()
            finally:
                consumer.close()
        return found

    def transact(self, topic: str, transactional_id: str, value: str) -> None:
        with self._translated():
            producer = self._new_producer(transactional_id=transactional_id)
            try:
                producer.initTransactions()
                producer.beginTransaction()
                producer.send(self._record(topic, value))
                producer.commitTransaction()
            finally:
                producer.close()

    def close(self) -> None:
        if self._producer is not None:
            with suppress(Py4JJavaError):
                self._producer.close()

    @staticmethod
    @contextmanager
    def _translated() -> Iterator[None]:
        try:
            yield
        except Py4JJavaError as exc:
            raise RefusedError(str(exc.java_exception)) from exc


class FranzGo:
    """franz-go, in a process of its own."""

    def __init__(self, program: str, login: Login) -> None:
        self._process = subprocess.Popen((program,), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        files = {"Authority": str(login.authority), "Certificate": str(login.certificate)}
        shown = {"User": login.user, "Password": login.password, "Token": login.token()}
        self._tell({"Bootstrap": login.bootstrap, "Mechanism": login.mechanism, **files, **shown})
        for _ in ("login", "options", "client"):
            self._answer()

    def send(self, topic: str, value: str) -> None:
        self._ask(Verb="send", Topic=topic, Value=value)

    def read(self, topic: str, group: str, count: int) -> list[str]:
        return self._ask(Verb="read", Topic=topic, Group=group, Count=count)

    def transact(self, topic: str, transactional_id: str, value: str) -> None:
        self._ask(Verb="transact", Topic=topic, Id=transactional_id, Value=value)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()

    def _ask(self, **verb: str | int) -> list[str]:
        self._tell(verb)
        return self._answer()

    def _tell(self, fields: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields) + "\n")
        self._process.stdin.flush()

    def _answer(self) -> list[str]:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["values"] or []


Make = Callable[[Login], LoginClient]
