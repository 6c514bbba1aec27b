"""Nodes that share a store: who leads what, what a node without its lease answers, and whom a store refuses."""

import asyncio
import logging
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from uuid import UUID, uuid4

import msgspec
import pytest

from kohort.broker.catalog.catalog import CATALOG, CATALOG_ID
from kohort.model.errors import ConfigError, ErrorCode, NotLeaderError
from kohort.model.ids import CONSUMER_OFFSETS, TopicPartition
from kohort.server.cluster.processes import is_dead, this_process
from kohort.storage.postgres import claims
from kohort.storage.postgres.connect import connect
from kohort.storage.postgres.store import PostgresStore
from kohort.storage.shared import Claim, Registration, Renewal
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.server.cluster.nodes import Nodes, play, until
from tests.storage.database import Database

NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
END_SESSIONS = b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'kohort %'"


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    made = Database()
    yield made
    made.close()


@pytest.fixture
def database(server: Database) -> Iterator[Database]:
    yield server.make_store()
    with server.connect() as connection:
        connection.execute("DROP SCHEMA kohort CASCADE")


def test_leaders_are_spread_over_the_nodes_and_move_when_one_stops(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        for node_id in (1, 2, 3):
            await nodes.start(node_id)
        follower = next(node_id for node_id in nodes.nodes if node_id != nodes.controller)
        assert await nodes.create_topic(follower, "orders", 6) == 0
        leaders = nodes.leaders(follower, "orders")
        assert sorted(leaders) == [1, 1, 2, 2, 3, 3]
        for index, leader in enumerate(leaders):
            await until(partial(_leads, nodes, leader, "orders", index))
            assert await nodes.produce(leader, "orders", index, b"a", b"b") == (0, 0)
            other = leader % 3 + 1
            assert (await nodes.produce(other, "orders", index, b"c"))[0] == NOT_LEADER
            assert (await nodes.end_offset(other, "orders", index))[0] == NOT_LEADER
        await nodes.stop(3)
        await until(lambda: sorted(nodes.leaders(1, "orders")) == [1, 1, 1, 2, 2, 2])
        await until(lambda: nodes.leaders(1, "orders") == nodes.leaders(2, "orders"))
        for index, leader in enumerate(nodes.leaders(1, "orders")):
            await until(partial(_leads, nodes, leader, "orders", index))
            assert await nodes.end_offset(leader, "orders", index) == (0, 2)

    play(database, story)


def _leads(nodes: Nodes, node_id: int, topic: str, index: int) -> bool:
    """Whether a node answers for a partition."""
    partitions = nodes.nodes[node_id].broker.apis[node_id].partitions
    try:
        return partitions.find(topic, index) is not None
    except NotLeaderError:
        return False


def test_clients_are_told_all_nodes_and_the_controller(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.start(1)
        await nodes.start(2)
        await until(lambda: nodes.nodes[1].broker.cluster.is_active(2))
        for at in (1, 2):
            answer = await nodes.ask(at, ApiKey.METADATA, 12, m.MetadataRequest(topics=[]))
            ports = {broker.node_id: broker.port for broker in answer.brokers}
            assert ports == {node_id: node.bound[node_id][0].port for node_id, node in nodes.nodes.items()}

    play(database, story)


def test_a_stop_commits_changes_that_have_begun_and_loads_nothing_for_them(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(nodes: Nodes) -> None:
        node = await nodes.start(1)
        node.broker.creation.auto_create(CONSUMER_OFFSETS)
        await nodes.stop(1)
        assert node.broker.catalog.topic(CONSUMER_OFFSETS) is not None
        assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []

    play(database, story)


def test_a_node_whose_lease_was_ended_joins_again_in_a_new_epoch(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        node = await nodes.start(1)
        assert await nodes.create_topic(1, "orders", 1) == 0
        await until(lambda: _leads(nodes, 1, "orders", 0))
        assert await nodes.produce(1, "orders", 0, b"a") == (0, 0)
        client = await nodes.client(1)
        port = node.bound[1][0].port
        before = nodes.sql.execute(b"SELECT leader_epoch FROM log WHERE topic = 'orders'").fetchone()
        nodes.sql.execute(b"UPDATE node SET state = 2")
        assert await client.is_closed()
        await until(lambda: node.broker.catalog.is_led and _leads(nodes, 1, "orders", 0))
        after = nodes.sql.execute(b"SELECT leader_epoch FROM log WHERE topic = 'orders'").fetchone()
        assert before is not None
        assert after is not None
        assert after[0] > before[0]
        await until(lambda: node.bound[1][0].port == port and not node.not_ready())
        assert await nodes.end_offset(1, "orders", 0) == (0, 1)
        assert nodes.failures == []

    play(database, story)


@pytest.mark.parametrize("times", [1, 2])
def test_a_node_that_loses_its_lease_while_it_starts_joins_again(database: Database, times: int) -> None:
    async def story(nodes: Nodes) -> None:
        nodes.sql.execute(b"UPDATE store SET lease_ms = 60000")
        other, now = Renewal(9, uuid4(), 0), b"SELECT incarnation FROM node WHERE node_id = 1 AND state = 0"
        assert claims.join(nodes.sql, other, Registration(), None)
        claims.claim(nodes.sql, 9, [Claim(CATALOG, CATALOG_ID, 0)])

        def look() -> UUID | None:
            """Let nodes look; the row of the one that starts."""
            nodes.sql.execute(b"SELECT pg_notify($1, '')", (claims.CHANNEL,))
            row = nodes.sql.execute(now).fetchone()
            return None if row is None else row[0]

        node = nodes.nodes[1] = nodes.make(1)
        starting = asyncio.ensure_future(node.start())
        seen: set[UUID] = set()
        for _ in range(times):
            await until(lambda: look() not in (None, *seen))
            seen.add(UUID(str(look())))
            assert node.not_ready()
            nodes.sql.execute(b"UPDATE node SET state = 2 WHERE node_id = 1")
        await until(lambda: look() not in (None, *seen))
        nodes.sql.execute(b"UPDATE node SET state = 2 WHERE node_id = 9")
        await until(lambda: (look(), starting.done())[1])
        assert await starting == node.bound[1][0]
        assert not node.not_ready()
        assert await nodes.create_topic(1, "orders", 1) == 0

    play(database, story)


def test_a_node_without_its_lease_cuts_its_clients_off_instead_of_an_answer(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        node = await nodes.start(1)
        client = await nodes.client(1)
        assert (await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=[]))).controller_id == 1
        assert node._membership is not None
        node._membership.member.lease.end()
        client.send(ApiKey.METADATA, 12, m.MetadataRequest(topics=[]))
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.frame()
        # The next renewal brings it back: nobody has ended it.
        await until(lambda: not node.not_ready())
        answer = await nodes.ask(1, ApiKey.METADATA, 12, m.MetadataRequest(topics=[]))
        assert answer.controller_id == 1

    play(database, story)


def test_a_second_process_with_the_id_of_a_node_is_refused(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.start(1)
        second = nodes.make(1)
        with pytest.raises(ConfigError, match="another process is node 1 of this store, and lives"):
            await second.start()
        await second.stop()
        assert not nodes.nodes[1].not_ready()

    play(database, story)


def test_the_row_of_a_killed_process_is_taken_at_once(database: Database) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        place = this_process().split()
        started = f"/proc/{process.pid}/stat"
        with open(started) as stat:
            ticks = stat.read().rpartition(")")[2].split()[19]
        registration = Registration(process=" ".join([*place[:-2], str(process.pid), ticks]))
        assert not is_dead(registration)
        process.kill()
    assert is_dead(registration)

    async def story(nodes: Nodes) -> None:
        nodes.sql.execute(b"UPDATE store SET lease_ms = 3600000")
        row = (1, uuid4(), 7, 0, 0, msgspec.json.encode(registration))
        nodes.sql.execute(b"INSERT INTO node VALUES ($1, $2, $3, $4, $5, $6)", row)
        await nodes.start(1)

    play(database, story)


def test_a_node_that_finds_another_database_takes_its_own_row_at_once(database: Database) -> None:
    """It could not give its lease back."""

    async def story(nodes: Nodes) -> None:
        nodes.sql.execute(b"UPDATE store SET lease_ms = 3600000")
        node = await nodes.start(1)
        store = node.broker.store
        assert isinstance(store, PostgresStore)
        assert store.identity is not None
        store.identity = msgspec.structs.replace(store.identity, timeline=7)
        nodes.sql.execute(END_SESSIONS)

        def is_ready_again() -> bool:
            assert node._membership is not None
            node._membership.member.look()
            return node.broker.store is not store and not node.not_ready()

        await until(is_ready_again)

    play(database, story)


def test_a_process_of_another_machine_may_live() -> None:
    machine, *rest = this_process().split()
    assert not is_dead(Registration(process=" ".join([f"{machine[:-1]}x", *rest])))
    assert not is_dead(Registration(process=""))
    assert not is_dead(Registration(process="nonsense"))
    assert is_dead(Registration(process=" ".join([machine, *rest[:-1], "1"])))


def test_a_log_that_has_lost_acknowledged_records_is_refused_until_the_next_start(database: Database) -> None:
    async def story(nodes: Nodes) -> None:
        node = await nodes.start(1)
        assert await nodes.create_topic(1, "orders", 1) == 0
        await until(lambda: _leads(nodes, 1, "orders", 0))
        for value in (b"a", b"b"):
            await nodes.produce(1, "orders", 0, value)
        # A standby without the last record has taken over.
        ids = nodes.sql.execute(b"UPDATE log SET next_offset = 1 WHERE topic = 'orders' RETURNING log_id").fetchone()
        assert ids is not None
        nodes.sql.execute(b"DELETE FROM batch WHERE log_id = $1 AND last_offset = 1", ids)
        nodes.sql.execute(b"UPDATE node SET state = 2")
        await until(node.not_ready)
        await until(lambda: not node.not_ready() and node.broker.catalog.topic("orders") is not None)
        await until(lambda: node.broker.store.get(TopicPartition("orders", 0)) is not None)
        log = node.broker.store.get(TopicPartition("orders", 0))
        assert log is not None
        assert log.refusal is not None
        assert "has lost acknowledged records: its next offset there is 1, and was 2" in log.refusal
        assert (await nodes.produce(1, "orders", 0, b"c"))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        await nodes.stop(1)
        await nodes.start(1)
        await until(lambda: _leads(nodes, 1, "orders", 0))
        assert await nodes.produce(1, "orders", 0, b"c") == (0, 1)

    play(database, story)


def test_a_node_with_many_open_files_keeps_its_lease(database: Database) -> None:
    """Numbers of files above 1023 are too high for `select`."""
    with ExitStack() as opened:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4_096)), hard))
        for _ in range(1_100):
            opened.enter_context(open(os.devnull))

        async def story(nodes: Nodes) -> None:
            node = await nodes.start(1)
            assert not node.not_ready()

        play(database, story)


@pytest.mark.parametrize("is_first", [True, False], ids=["before the new leader", "after the new leader"])
def test_a_producer_is_told_the_outcome_of_an_append_that_is_under_way_when_the_leader_changes(
    database: Database, is_first: bool
) -> None:
    """`NOT_LEADER_OR_FOLLOWER` says that nothing was appended."""
    held = (
        b"INSERT INTO batch (log_id, base_offset, last_offset, max_timestamp, data) SELECT log_id, 1, 1, 0, '' FROM log"
        if is_first  # The append has locked the row of its log, and waits for the outcome of another batch at its offset.
        else b"SELECT 1 FROM log"
    )

    async def story(nodes: Nodes) -> None:
        await nodes.start(2)
        await nodes.start(1)
        assert await nodes.create_topic(2, "orders", 2) == 0
        await until(lambda: sorted(nodes.leaders(1, "orders")) == [1, 2])
        index = nodes.leaders(1, "orders").index(1)
        await until(partial(_leads, nodes, 1, "orders", index))
        assert await nodes.produce(1, "orders", index, b"a") == (0, 0)
        with connect(nodes.target) as holder:
            with holder.transaction(force_rollback=True):
                lock = b" FOR UPDATE" if not is_first else b""
                holder.execute(held + b" WHERE topic = 'orders' AND partition = $1" + lock, (index,))
                waiting = asyncio.ensure_future(nodes.produce(1, "orders", index, b"b"))
                if is_first:
                    await until(lambda: _lock_waits(nodes) == 1)
                nodes.sql.execute(b"UPDATE node SET drained = true WHERE node_id = 1")
                claims.hint(nodes.sql)
                await until(lambda: nodes.leaders(1, "orders") == [2, 2])
                await until(lambda: _lock_waits(nodes) == 1 + is_first)
                assert not waiting.done()
            assert await waiting == ((0, 1) if is_first else (NOT_LEADER, 1))
        await until(partial(_leads, nodes, 2, "orders", index))
        assert await nodes.end_offset(2, "orders", index) == (0, 1 + is_first)

    play(database, story)


def _lock_waits(nodes: Nodes) -> int:
    """The number of statements that wait for another one."""
    row = nodes.sql.execute(b"SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    assert row is not None
    return int(row[0])
