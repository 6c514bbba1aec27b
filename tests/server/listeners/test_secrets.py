"""
Secrets reach no client, no log and no page.

CVE-2019-12399: an API answered configurations with their secrets. CVE-2026-33558: logs showed requests with credentials.
"""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.security.protocols import SecurityProtocol
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.security.certificates import Authority, pair
from tests.server.clients import Connect, play_at
from tests.server.listeners.test_sasl import PLAIN, authenticate, is_served

SECRETS = (
    "alice-secret",
    "bob-secret",
    "of-the-broker",
    "key-password",
    "BEGIN ENCRYPTED PRIVATE KEY",
    "of-the-tokens",
)


def secured(authority: Authority) -> dict[str, str]:
    key, chain = pair(authority.issue(), "key-password")
    return PLAIN | {
        "delegation.token.secret.key": "of-the-tokens",
        "listener.name.ssl.ssl.keystore.type": "PEM",
        "listener.name.ssl.ssl.keystore.key": key,
        "listener.name.ssl.ssl.keystore.certificate.chain": chain,
        "listener.name.ssl.ssl.key.password": "key-password",
        "ssl.key.password": "key-password",
    }


def test_cve_2019_12399_and_cve_2026_33558_no_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    shown: list[str] = []

    async def story(node: Node, connect: Connect) -> None:
        client = await connect(node.bound[1][0])
        assert (await authenticate(client)).error_code == 0
        resource = m.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
        request = m.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        (answer,) = (await client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)).results
        entries = {entry.name: entry for entry in answer.configs}
        for name in secured(authority):
            if name.endswith(("jaas.config", "keystore.key", "key.password", "secret.key", "certificate.chain")):
                assert (entries[name].value, entries[name].is_sensitive) == (None, True), name
        assert entries["listener.name.ssl.ssl.keystore.type"].value == "PEM"
        shown.append(repr(answer))
        wrong = await connect(node.bound[1][0])
        shown.append(repr(await authenticate(wrong, "bob", "bob-secret?")))
        shown.extend(map(repr, (node._settings, node._settings.config, node._logins, node._listeners)))
        assert await is_served(client)

    authority = Authority()
    with caplog.at_level(logging.DEBUG):
        play_at(story, configs=secured(authority), listeners="SASL_PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0")
    everything = " ".join((*shown, caplog.text))
    assert [secret for secret in SECRETS if secret in everything] == []


def test_values_of_single_listeners_are_listed_without_their_secrets(tmp_path: Path) -> None:
    """`kohort config --json`."""
    file = tmp_path / "server.properties"
    lines = (f"{name}={value}" for name, value in PLAIN.items())
    file.write_text("\n".join(lines))
    command = [sys.executable, "-m", "kohort.cli.main", "config", "--json", "--config", str(file), "sasl"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    assert "listener.name.sasl_plaintext.plain.sasl.jaas.config" in done.stdout
    assert [secret for secret in SECRETS if secret in done.stdout] == []


def test_a_listener_shows_no_value() -> None:
    config = ListenerConfig(BrokerConfig(PLAIN), "SASL_PLAINTEXT", SecurityProtocol.SASL_PLAINTEXT)
    assert "alice-secret" in str(config.of_mechanism("PLAIN").own_text("sasl.jaas.config"))
    assert "alice-secret" not in repr(config)
