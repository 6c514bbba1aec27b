"""`kohort cluster status`, `drain` and `forget`: rows of nodes, as nodes and operators write them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest

from kohort.broker.catalog.catalog import CATALOG, CATALOG_ID
from kohort.broker.controller.controller import Drain, Register, next_step
from kohort.broker.controller.leases import LeaseWatch
from kohort.broker.controller.registrations import registered
from kohort.cli.main import run
from kohort.model.ids import TopicPartition
from kohort.storage.postgres import claims
from kohort.storage.postgres.connect import Target, connect
from kohort.storage.postgres.schema import SCHEMA
from kohort.storage.shared import Claim, NodeRow, NodeState, Registration, Renewal
from tests.storage.database import Database

TOPIC_ID = uuid4()
HERE = Registration({"PLAINTEXT": ("127.0.0.1", 9092)}, "a", "1.2.3")


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    made = Database()
    yield made
    made.close()


@pytest.fixture
def database(server: Database, capsys: pytest.CaptureFixture[str]) -> Database:
    with server.connect() as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    assert run(["store", "init", server.url, "--lease-ms", "1000"]) == 0
    capsys.readouterr()
    return server


class Nodes:
    """Writes rows as nodes do."""

    def __init__(self, database: Database) -> None:
        self.connection = connect(Target(database.url, SCHEMA))
        self.incarnations: dict[int, UUID] = {}

    def join(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.incarnations[node_id] = uuid4()
            row = claims.look(self.connection, CATALOG, None).nodes.get(node_id)
            assert claims.join(self.connection, self.renewal(node_id), HERE, row)

    def renewal(self, node_id: int, state: NodeState = NodeState.LIVE) -> Renewal:
        return Renewal(node_id, self.incarnations[node_id], 0, state)

    def renew(self, node_id: int, state: NodeState = NodeState.LIVE) -> NodeRow:
        return claims.look(self.connection, CATALOG, self.renewal(node_id, state)).nodes[node_id]

    def lead(self, node_id: int, *indexes: int, epoch: int = 0) -> None:
        places = [Claim(TopicPartition("orders", index), TOPIC_ID, epoch) for index in indexes]
        claims.claim(self.connection, node_id, places)

    def lead_catalog(self, node_id: int) -> None:
        claims.claim(self.connection, node_id, [Claim(CATALOG, CATALOG_ID, 0)])

    @contextmanager
    def renewing(self, *node_ids: int) -> Iterator[None]:
        ended = threading.Event()

        def go_on() -> None:
            while not ended.wait(0.02):
                for node_id in node_ids:
                    self.renew(node_id)

        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


@pytest.fixture
def nodes(database: Database) -> Iterator[Nodes]:
    made = Nodes(database)
    yield made
    made.connection.close()


def status(database: Database, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[int, dict[str, object]], str]:
    """Exit code, rows by node, and what was said of problems."""
    code = run(["cluster", "status", database.url, "--json"])
    printed = capsys.readouterr()
    return code, {row["node"]: row for row in json.loads(printed.out)}, printed.err


def test_nodes_that_live_and_lead_are_shown(
    database: Database, nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.join(1, 2)
    nodes.lead_catalog(2)
    nodes.lead(1, 0, 1)
    nodes.lead(2, 2, epoch=4)
    with nodes.renewing(1, 2):
        code, rows, problems = status(database, capsys)
        assert run(["cluster", "status", database.url]) == 0
        table = capsys.readouterr().out
    assert (code, problems) == (0, "")
    wanted = ("state", "controller", "leads", "epoch", "version", "rack", "address")
    assert [rows[1][name] for name in wanted] == ["live", False, 2, 0, "1.2.3", "a", "127.0.0.1:9092"]
    assert [rows[2][name] for name in wanted[:4]] == ["live", True, 1, 4]
    assert isinstance(age := rows[1]["lease_age_ms"], int)
    assert age < 1000
    assert ": controller node 2 in epoch 0, 3 partitions, lease 1000 ms\n" in table


def test_a_missing_node_and_partitions_without_a_leader_are_problems(
    database: Database, nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "status", database.url]) == 1
    assert "no node has joined" in capsys.readouterr().err
    nodes.join(1, 2, 3)
    nodes.lead_catalog(1)
    nodes.lead(1, 0)
    nodes.lead(2, 1, 2)
    nodes.renew(2, NodeState.ENDED)
    with nodes.renewing(3):
        code, rows, problems = status(database, capsys)
    assert code == 1
    assert {node_id: row["state"] for node_id, row in rows.items()} == {1: "silent", 2: "stopped", 3: "live"}
    assert "node 1 has not renewed its lease for " in problems
    assert f"kohort cluster forget '{database.url}' 2\n" in problems
    assert "3 partitions have no leader\nthe cluster has no controller\n" in problems


def test_a_drain_outlives_renewals_and_starts_until_it_is_ended(
    database: Database, nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.join(1, 2)
    assert run(["cluster", "drain", database.url, "1"]) == 0
    assert nodes.renew(1).is_drained
    nodes.renew(1, NodeState.ENDED)
    nodes.join(1)
    assert nodes.renew(1).is_drained
    assert not nodes.renew(2).is_drained
    capsys.readouterr()
    with nodes.renewing(1, 2):
        assert status(database, capsys)[1][1]["state"] == "drained"
    assert run(["cluster", "drain", database.url, "1", "--end"]) == 0
    assert not nodes.renew(1).is_drained


def test_a_drain_waits_until_others_have_claimed(
    database: Database, nodes: Nodes, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.join(1, 2)
    nodes.lead_catalog(1)
    nodes.lead(1, 0, 1)
    assert run(["cluster", "drain", database.url, "1", "--timeout", "0.2"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "Node 1 leads 2 partitions\n"
    assert "node 1 leads 2 partitions after 0.2 s; the drain goes on" in printed.err
    nodes.lead(2, 0, 1, epoch=1)
    assert run(["cluster", "drain", database.url, "1"]) == 0
    assert capsys.readouterr().out == "Node 1 is drained\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("drain {} 7", "{} has no node 7; its nodes: 1, 2, 3"),
        ("drain {} 3", "node 3 is stopped, and leads nothing"),
        ("drain {} 2", "no other node could lead the partitions of node 2: start one, or end its drain"),
        ("drain {} 2 --end", "node 2 is not drained"),
        ("drain {} 7 --end", "has no node 7"),
        ("forget {} 7", "has no node 7"),
        ("forget {} 1", "node 1 is not stopped: stop it first"),
    ],
)
def test_what_makes_no_sense_is_refused(
    database: Database, nodes: Nodes, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes.join(1, 2, 3)
    nodes.renew(3, NodeState.ENDED)
    assert run(["cluster", "drain", database.url, "1"]) == 0
    capsys.readouterr()
    assert run(["cluster", *words.format(database.url).split()]) == 2
    assert said.format(database.url) in capsys.readouterr().err


def test_a_stopped_node_is_forgotten(database: Database, nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    nodes.join(1, 2)
    nodes.lead_catalog(1)
    nodes.renew(2, NodeState.ENDED)
    assert run(["cluster", "forget", database.url, "2"]) == 0
    capsys.readouterr()
    with nodes.renewing(1):
        code, rows, problems = status(database, capsys)
    assert (code, list(rows), problems) == (0, [1], "")


def test_a_database_without_a_store_is_named(server: Database, capsys: pytest.CaptureFixture[str]) -> None:
    with server.connect() as connection:
        connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")
    for words in ("status {}", "drain {} 1", "forget {} 1"):
        assert run(["cluster", *words.format(server.url).split()]) == 2
        assert "has no store of Kohort; make one with `kohort store init" in capsys.readouterr().err


def test_the_controller_registers_a_drained_node_as_one_that_leads_nothing() -> None:
    watch = LeaseWatch(lambda: 0.0, 1.0)
    row = NodeRow(2, uuid4(), 1, NodeState.LIVE, 0, HERE, is_drained=True)
    wished = NodeRow(2, row.incarnation, 2, NodeState.LIVE, 0, HERE)
    drained, active = registered(row), registered(wished)
    assert drained.is_draining
    assert not active.is_draining
    assert next_step({2: row}, {}, watch, 1) == Register(row)
    assert next_step({2: row}, {2: drained}, watch, 1) is None
    assert next_step({2: row}, {2: active}, watch, 1) == Drain(2, active)
    assert next_step({2: wished}, {2: drained}, watch, 1) == Register(wished)
    assert next_step({2: wished}, {2: active}, watch, 1) is None
