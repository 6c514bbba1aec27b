"""What a node is started with, and what it says of itself."""

import asyncio
import json
import logging
from collections.abc import Mapping

import pytest

from kohort.broker.configs.definitions import BROKER_KEYS, BrokerConfig, bound_keys
from kohort.broker.configs.values import Value
from kohort.model.errors import ConfigError
from kohort.server.logs import JsonFormatter, KeyValueFormatter
from kohort.server.node import Node
from kohort.server.settings import Settings, parse_host_port


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("[::1]:1", ("::1", 1)),
        ("a.b-c.example:65535", ("a.b-c.example", 65_535)),
    ],
)
def test_an_address_is_host_and_port(text: str, parsed: tuple[str, int]) -> None:
    assert parse_host_port(text, "--advertised") == parsed


@pytest.mark.parametrize(
    "text", ["", "localhost", ":9092", "localhost:", "localhost:0", "localhost:65536", "localhost:x"]
)
def test_what_is_no_address_is_said_with_the_option(text: str) -> None:
    with pytest.raises(ConfigError, match="--advertised must be HOST:PORT"):
        parse_host_port(text, "--advertised")


VALIDATED_ONLY = {
    name
    for name in BROKER_KEYS
    if name.startswith("group.streams.")
    and (any(bound_keys(name)) or name in {key for each in BROKER_KEYS for key in bound_keys(each)})
}
"""The start checks that values of groups are in order; nothing uses them yet."""


class ReadConfig(BrokerConfig):
    """Notes which configurations are read."""

    def __init__(self, explicit: Mapping[str, str]) -> None:
        self.read: set[str] = set()
        super().__init__(explicit)

    def __getitem__(self, name: str) -> Value:
        self.read.add(name)
        return super().__getitem__(name)


def test_every_configuration_that_a_node_reads_is_said_to_have_an_effect() -> None:
    config = ReadConfig({"node.id": "1"})

    async def run() -> None:
        node = Node(Settings(port=0, metrics_port=0, config=config), asyncio.get_running_loop())
        await node.start()
        await node.stop()

    asyncio.run(run())
    assert "num.partitions" not in config.read, "it is read when a topic is created"
    assert len(config.read) > 20
    assert {name for name in config.read if not BROKER_KEYS[name].has_effect} == VALIDATED_ONLY


def test_a_configuration_that_kafka_does_not_know_is_a_warning_that_names_it(caplog: pytest.LogCaptureFixture) -> None:
    names = (
        "allow.everyone.if.no.acl.found",
        "super.users",
        "listener.name.internal.ssl.keystore.typ",
        "num.partition",
    )

    async def run() -> None:
        await Node(Settings(port=0, config=BrokerConfig(dict.fromkeys(names, "1"))), asyncio.get_running_loop()).stop()

    with caplog.at_level(logging.WARNING, "kohort.server"):
        asyncio.run(run())
    lines = [line.getMessage() for line in caplog.records]
    assert sorted(line.split()[1] for line in lines) == sorted(f"key={name}" for name in names)
    assert "config.unknown key=num.partition hint='num.partitions'" in lines


def record(message: str, *arguments: object) -> logging.LogRecord:
    made = logging.LogRecord("kohort.storage", logging.INFO, __file__, 1, message, arguments, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    return made


def test_a_line_for_people() -> None:
    line = KeyValueFormatter().format(record("log.recovered partition=%s bytes=%d", "a-0", 12))
    assert line == "2023-11-14T22:13:20.250Z INFO kohort.storage log.recovered partition=a-0 bytes=12"


def test_a_line_for_machines() -> None:
    line = JsonFormatter().format(record("connection.refused client=%s error=%s", "/127.0.0.1", "not the protocol"))
    assert json.loads(line) == {
        "time_ms": 1_700_000_000_250,
        "level": "INFO",
        "logger": "kohort.storage",
        "event": "connection.refused",
        "client": "/127.0.0.1",
        "error": "not the protocol",
    }


def test_a_name_of_a_client_makes_no_field() -> None:
    """The fields of a line are those of its format: a client that chooses a name cannot lower the level of the line."""
    name = "billing level=DEBUG event=all.well other=1"
    made = record("group.refused group=%r client=%s-%d error=%s", name, name, 7, "level=INFO no room")
    assert json.loads(JsonFormatter().format(made)) == {
        "time_ms": 1_700_000_000_250,
        "level": "INFO",
        "logger": "kohort.storage",
        "event": "group.refused",
        "group": repr(name),
        "client": f"{name}-7",
        "error": "level=INFO no room",
    }


def test_an_argument_alone_has_fields_of_its_own() -> None:
    line = json.loads(JsonFormatter().format(record("coordinator.new_epoch %s broker=%d", "partition=a-0 epoch=3", 1)))
    assert (line["event"], line["partition"], line["epoch"], line["broker"]) == (
        "coordinator.new_epoch",
        "a-0",
        "3",
        "1",
    )


def test_words_of_a_sentence_belong_to_the_field_before_them() -> None:
    line = JsonFormatter().format(record("log.repaired offset=%d cut at 50%% of %s", 5, "a-0"))
    assert json.loads(line)["offset"] == "5 cut at 50% of a-0"
    line = JsonFormatter().format(record("100% of the log"))
    assert json.loads(line)["event"] == "100% of the log"
