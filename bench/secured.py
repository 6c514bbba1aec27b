"""
`python -m bench.secured`: what authentication, access rules and encryption cost.

- Commits on 64 connections: Kohort without security, and with SASL and 1 000 access rules, in alternating rounds.
- Records through librdkafka, sent and read back, without and with TLS: Kohort beside Apache Kafka.
"""

import argparse
import itertools
import json
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from bench.load import closed_loop
from bench.load.client import open_socket, send
from bench.load.requests import TOPIC, commit_lanes, group_of, prepare
from kohort.server.listeners.made_certificates import AUTHORITY, MadeCertificates
from kohort.testing.kafka import KafkaNode
from kohort.testing.ports import free_ports
from kohort.testing.served import ServedKohort
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

CONNECTIONS: Final = 64
RULES: Final = 1_000
GROUPS: Final = 64
ADMIN, USER, SECRET = "admin", "alice", "secret"
STANDARD: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN}",
}
RECORD_BYTES: Final = 1_000


def logged_in(port: int) -> socket.socket:
    """Open a socket and authenticate it with SASL PLAIN."""
    opened = open_socket(port)
    handshake = send(opened, ApiKey.SASL_HANDSHAKE, 1, m.SaslHandshakeRequest(mechanism="PLAIN"))
    token = f"\0{USER}\0{SECRET}".encode()
    answer = send(opened, ApiKey.SASL_AUTHENTICATE, 2, m.SaslAuthenticateRequest(auth_bytes=token))
    assert (handshake.error_code, answer.error_code) == (0, 0), answer
    return opened


def add_rules(port: int) -> None:
    """Rules that let the user commit, and rules of other names, users and kinds around them."""
    credentials = {"sasl.mechanism": "PLAIN", "sasl.username": ADMIN, "sasl.password": SECRET}
    client = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT", **credentials}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(TOPIC, 100, 1)])[TOPIC].result(30)
    literal, prefixed = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
    topic, group = ResourceType.TOPIC, ResourceType.GROUP
    names = itertools.chain(
        [(topic, TOPIC, literal, USER), (group, "*", literal, USER)],
        ((topic, f"{TOPIC[:2]}{number}-", prefixed, USER) for number in range(RULES // 2)),
        ((group, f"group-{number}", literal, f"user-{number}") for number in range(RULES // 2 - 2)),
    )
    rules = [
        AclBinding(kind, name, pattern, f"User:{user}", "*", AclOperation.READ, AclPermissionType.ALLOW)
        for kind, name, pattern, user in names
    ]
    for future in admin.create_acls(rules).values():
        future.result(30)


def commits(rounds: int, seconds: float) -> dict[str, float]:
    """Commits a second without and with security, and the median of the ratios of paired rounds."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plain = stack.enter_context(ServedKohort(directory / "plain", flush="os"))
        users = [f"--user={name}:{SECRET}" for name in (ADMIN, USER)]
        secured = stack.enter_context(ServedKohort(directory / "secured", STANDARD, flush="os", options=users))
        prepare(plain.port)
        add_rules(secured.port)
        send(logged_in(secured.port), ApiKey.FIND_COORDINATOR, 2, m.FindCoordinatorRequest(key=group_of(0), key_type=0))
        lanes = {
            "plain": commit_lanes([open_socket(plain.port) for _ in range(CONNECTIONS)], GROUPS, 1),
            "secured": commit_lanes([logged_in(secured.port) for _ in range(CONNECTIONS)], GROUPS, 1),
        }
        pairs = [
            {name: closed_loop.run(each, seconds).per_second for name, each in lanes.items()} for _ in range(rounds)
        ]
    return {
        **{f"{name}_per_second": statistics.median(pair[name] for pair in pairs) for name in lanes},
        "ratio": statistics.median(pair["secured"] / pair["plain"] for pair in pairs),
    }


@contextmanager
def kohort_with_tls(directory: Path, stores: dict[str, str]) -> Iterator[tuple[int, int]]:
    plain, encrypted = free_ports(2)
    listeners = {"listeners": f"PLAINTEXT://127.0.0.1:{plain},SSL://127.0.0.1:{encrypted}"}
    with ServedKohort(directory / "kohort", {**listeners, **stores}, flush="os"):
        yield plain, encrypted


@contextmanager
def kafka_with_tls(directory: Path, stores: dict[str, str]) -> Iterator[tuple[int, int]]:
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"}
    node = KafkaNode(directory / "kafka", stores | protocols)
    (encrypted,) = free_ports(1)
    properties = node.directory / "server.properties"
    text = properties.read_text()
    address = f"PLAINTEXT://127.0.0.1:{node.port}"
    properties.write_text(text.replace(address, f"{address},SSL://127.0.0.1:{encrypted}"))
    with node:
        yield node.port, encrypted


def moved(port: int, client: dict[str, str], name: str, records: int) -> tuple[float, float]:
    """Megabytes a second that one producer sends with acks=all, and that one consumer reads."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", **client}
    admin = AdminClient(settings)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": 2_000_000})
    value = bytes(RECORD_BYTES)
    begun = time.perf_counter()
    for _ in range(records):
        producer.produce(name, value)
    producer.flush(120)
    sent_s = time.perf_counter() - begun
    consumer = Consumer({**settings, "group.id": name, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    begun, read = time.perf_counter(), 0
    while read < records:
        read += len(consumer.consume(10_000, 30))
    read_s = time.perf_counter() - begun
    consumer.close()
    megabytes = records * RECORD_BYTES / 1e6
    return megabytes / sent_s, megabytes / read_s


def records_through_tls(rounds: int, records: int) -> dict[str, float]:
    certificates = MadeCertificates(())
    found: dict[str, list[tuple[float, float]]] = {}
    try:
        for name, started in (("kohort", kohort_with_tls), ("kafka", kafka_with_tls)):
            with tempfile.TemporaryDirectory() as directory, started(Path(directory), certificates.configs()) as ports:
                trusted = {"security.protocol": "SSL", "ssl.ca.location": str(certificates.directory / AUTHORITY)}
                for number in range(rounds):
                    for kind, port, client in (("plain", ports[0], {}), ("tls", ports[1], trusted)):
                        rates = moved(port, client, f"{kind}-{number}", records)
                        found.setdefault(f"{name} {kind}", []).append(rates)
    finally:
        certificates.remove()
    return {
        f"{name} {what} MB/s": round(statistics.median(rates[index] for rates in each), 1)
        for name, each in found.items()
        for index, what in enumerate(("sent", "read"))
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.secured", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of one round of commits")
    parser.add_argument("--records", type=int, default=200_000, help="of 1 kB, in one round of TLS")
    parsed = parser.parse_args()
    print(json.dumps(commits(parsed.rounds, parsed.seconds), indent=1), flush=True)
    if shutil.which("java"):
        print(json.dumps(records_through_tls(parsed.rounds, parsed.records), indent=1))


if __name__ == "__main__":
    main()
