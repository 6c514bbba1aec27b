"""Brokers that ask for a login and have an authorizer: Kohort and Apache Kafka, and what tests need to log in there."""

from collections.abc import Mapping
from pathlib import Path

from kohort.testing.kafka import KafkaNode
from kohort.testing.served import ServedKohort

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PASSWORDS = {"admin": "admin-secret", "alice": "alice-secret", "bob": "bob-secret"}
"""The users of PLAIN; admin is a super user."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin;User:ANONYMOUS",
    "delegation.token.secret.key": "the key of the tokens",
}


def secured_kohort(directory: Path, properties: Mapping[str, str] | None = None) -> ServedKohort:
    """A broker whose users exist for all mechanisms of passwords."""
    users = [word for name, password in PASSWORDS.items() for word in ("--user", f"{name}:{password}")]
    return ServedKohort(directory, AUTHORIZER | dict(properties or {}), options=users)


def secured_kafka(directory: Path, properties: Mapping[str, str] | None = None) -> KafkaNode:
    """A node whose only listener for clients is SASL_PLAINTEXT."""
    users = " ".join(f'user_{name}="{password}"' for name, password in PASSWORDS.items())
    own = f'username="admin" password="{PASSWORDS["admin"]}"'
    listener = "listener.name.plaintext"
    secured = {
        # The listener keeps its name: the node asks there whether it has started.
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{listener}.plain.sasl.jaas.config": f"{PLAIN_MODULE} {own} {users};",
        **{f"{listener}.{name.lower()}.sasl.jaas.config": f"{SCRAM_MODULE};" for name in MECHANISMS[1:]},
    }
    return KafkaNode(directory, AUTHORIZER | secured | dict(properties or {}))


def client_properties(user: str, password: str, mechanism: str = "PLAIN", *, is_token: bool = False) -> dict[str, str]:
    """The configurations of Kafka's clients and tools for a login."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    more = ' tokenauth="true"' if is_token else ""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} username="{user}" password="{password}"{more};',
    }


def write_properties(file: Path, properties: Mapping[str, str]) -> Path:
    """A file as --command-config takes it."""
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return file
