"""The budget of a start: what it imports up to the first answer, and that everything it leaves out is found later."""

import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kohort.broker.broker import Broker
from kohort.client.addresses import Address
from kohort.client.connection import Connection
from kohort.model.errors import ConfigError
from kohort.server.coordinators.entries import COORDINATORS, GROUPS
from kohort.server.coordinators.hosted_coordinator import Coordinator
from kohort.testing.process import end, first_line, spawn
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey, versions_in
from tests.broker.harness import Harness

OWN_MODULES_MAX = 191
MODULES_MAX = 390
"""A module costs 0.3 million instructions beside its content; the interpreter with asyncio has 140 of them."""
LEFT_OUT = (
    "aiokafka",
    "hashlib",
    "json",
    "kio",
    "kohort.broker.acls",
    "kohort.broker.shares",
    "kohort.broker.telemetry",
    "kohort.broker.tokens",
    "kohort.client",
    "kohort.group",
    "kohort.records",
    "kohort.security.acls",
    "kohort.security.sasl",
    "kohort.share",
    "kohort.storage.cleaning",
    "kohort.storage.disk",
    "kohort.storage.postgres",
    "kohort.transaction",
    "logging.handlers",
    "prometheus_client",
    "shutil",
    "typer",
)


def imported_by_a_start(log: Path) -> set[str]:
    """The modules that a broker in memory has imported when it has answered ApiVersions and stopped."""
    command = (sys.executable, "-X", "importtime", "-m", "kohort.cli.main", "serve", "--memory", "--port", "0")
    with log.open("wb") as stderr:
        process = spawn(command, stderr)
        try:
            ready = dict(word.partition("=")[::2] for word in first_line(process).split())
            with Connection(Address(ready["host"], int(ready["port"])), 60):
                pass  # it asks for the versions
        finally:
            end(process, is_forced=False)
    lines = log.read_text().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


def test_a_start_imports_what_the_first_answer_needs(tmp_path: Path) -> None:
    imported = imported_by_a_start(tmp_path / "log")
    own = sorted(name for name in imported if name.partition(".")[0] == "kohort")
    assert "kohort.server.node" in own
    needless = [
        name for name in imported if name.startswith(tuple(f"{each}." for each in LEFT_OUT)) or name in LEFT_OUT
    ]
    assert not needless
    by_room = {room: len(list(names)) for room, names in groupby(own, key=lambda name: name.split(".")[:2][-1])}
    assert len(own) <= OWN_MODULES_MAX, by_room
    assert len(imported) <= MODULES_MAX, sorted(imported)


def test_every_api_that_a_start_leaves_out_is_made_by_its_first_request() -> None:
    harness = Harness()
    harness.host(*COORDINATORS)
    handlers = harness.broker.handlers
    served = {api for entry in COORDINATORS for api in entry.apis} | set(handlers)
    assert served == set(handlers)
    for api in served:
        assert callable(handlers[api]), api.api_name
        assert handlers[api] is handlers[api], "a handler is made once"
    assert served <= set(versions_in(DEFAULT_RELEASE))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("group.consumer.assignors", "nobodys"),
        ("offsets.topic.compression.codec", "9"),
        ("share.coordinator.state.topic.compression.codec", "9"),
    ],
)
def test_a_configuration_of_a_coordinator_is_checked_before_the_coordinator_is_needed(name: str, text: str) -> None:
    settings: Any = {name.replace(".", "_"): text}
    harness = Harness(**settings)
    with pytest.raises(ConfigError, match=name):
        harness.host(*COORDINATORS)


def test_a_coordinator_is_made_once_for_its_topic_and_for_no_other() -> None:
    made: list[str] = []

    def make(broker: Broker) -> Coordinator[Any, Any]:
        made.append(GROUPS.topic)
        return GROUPS.make(broker)

    harness = Harness()
    harness.host(msgspec.structs.replace(GROUPS, make=make))
    harness.create("t")
    harness.node.settle()
    assert made == []
    for group_id in "gh":
        harness.ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(coordinator_keys=[group_id]))
        harness.node.settle()
    assert made == [GROUPS.topic]
