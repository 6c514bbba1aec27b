"""Kohort makes the directory of a partition with its first record: a partition without one is empty, and not missing."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kohort.broker.configs.definitions import BrokerConfig
from kohort.cli.demo.clients import Clients, Member
from kohort.cli.pipeline.commands import app
from kohort.cli.serve_settings import configs_for_tests
from kohort.pipeline.exporter.exporter import Exporter
from kohort.pipeline.sources.unwritten import unwritten
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire.apis import DEFAULT_RELEASE

TRANSACTION_STATES = 5


async def _hour(data_dir: Path) -> None:
    """A group owns four partitions, of which one has a record; a transaction has one of the coordinator's logs."""
    config = BrokerConfig.load(defaults=configs_for_tests(DEFAULT_RELEASE))
    settings = Settings(port=0, data_dir=data_dir, flush="os", config=config, makes_internal_topics=True)
    node = Node(settings, asyncio.get_running_loop())
    await node.start()
    clients = Clients(node)
    await clients.create("orders", 4)
    await clients.transact("settlement", "orders", 0, ["a"])
    member = Member(clients, "billing", "billing-1", "orders")
    await member.heartbeat()
    await node.stop()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data_dir = tmp_path_factory.mktemp("data")
    asyncio.run(_hour(data_dir))
    return data_dir


def status(logs: Path) -> tuple[dict[int, str], str]:
    done = CliRunner().invoke(app, ["status", str(logs), "--engine", "local", "--json"])
    return {row["partition"]: row["verdict"] for row in json.loads(done.stdout)}, done.stderr


def test_the_logs_are_empty(logs: Path) -> None:
    found = {place for place in unwritten(str(logs)) if place.topic in ("orders", "__transaction_state")}
    assert len(found) == 3 + TRANSACTION_STATES - 1
    verdicts, told = status(logs)
    assert verdicts == dict.fromkeys(range(4), "OK")
    assert "has no" not in told
    exporter = Exporter(str(logs))
    snapshot = exporter.poll()
    assert snapshot.problems == ()
    assert {one.key.partition: one.verdict for one in snapshot.partitions} == verdicts
    assert (snapshot.missing, snapshot.hanging) == (0, [])


def test_in_a_copy_of_some_directories_they_are_missing(logs: Path, tmp_path: Path) -> None:
    for directory in logs.glob("__*"):
        shutil.copytree(directory, tmp_path / directory.name)
    assert unwritten(str(tmp_path)) == {}
    verdicts, told = status(tmp_path)
    assert set(verdicts.values()) == {"UNKNOWN"}
    assert "has no logs of orders-0, orders-1, orders-2, orders-3, so the lag there is unknown" in told


def test_one_that_had_records_is_missing(logs: Path, tmp_path: Path) -> None:
    shutil.copytree(logs, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "orders-0")
    assert status(tmp_path / "copy")[0] == {0: "UNKNOWN", 1: "OK", 2: "OK", 3: "OK"}
