"""The statements of nodes that share a store: each compares before it changes."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from kohort.broker.catalog.catalog import CATALOG
from kohort.storage.postgres.claims import claim, end_lease, join, look
from kohort.storage.postgres.connect import Connection, Target, connect
from kohort.storage.shared import Claim, NodeRow, NodeState, Registration, Renewal
from tests.storage.database import shared_database
from tests.storage.owner import PARTITION, TOPIC_ID, Owner

A, B, C = (UUID(int=number) for number in (1, 2, 3))
REGISTRATION = Registration({"PLAINTEXT": ("node", 9092)})


@pytest.fixture
def sql() -> Iterator[Connection]:
    schema = shared_database().new_schema()
    store = Owner().postgres(schema, is_shared=True)
    connection = connect(Target(shared_database().url, schema))
    yield connection
    connection.close()
    store.close()


def row(sql: Connection) -> NodeRow:
    return look(sql, CATALOG, None).nodes[1]


def take(sql: Connection, incarnation: UUID, replaced: NodeRow | None) -> bool:
    return join(sql, Renewal(1, incarnation, 5), REGISTRATION, replaced)


def test_a_row_is_taken_as_it_was_seen(sql: Connection) -> None:
    assert take(sql, A, None)
    assert not take(sql, B, None)
    assert row(sql) == NodeRow(1, A, 0, NodeState.LIVE, 5, REGISTRATION)
    seen = row(sql)
    assert look(sql, CATALOG, Renewal(1, A, 6)).is_renewed
    assert not take(sql, B, seen)
    seen = row(sql)
    assert end_lease(sql, seen)
    assert take(sql, B, seen)
    assert row(sql) == NodeRow(1, B, 2, NodeState.LIVE, 5, REGISTRATION)
    assert end_lease(sql, row(sql))
    assert not take(sql, A, seen)
    assert row(sql).state is NodeState.ENDED


def test_a_renewal_takes_effect_on_the_row_of_this_process_alone(sql: Connection) -> None:
    assert not look(sql, CATALOG, Renewal(1, A, 6)).is_renewed
    take(sql, A, None)
    seen = look(sql, CATALOG, Renewal(1, A, 7, NodeState.DRAINING))
    assert (seen.is_renewed, seen.nodes[1]) == (True, NodeRow(1, A, 1, NodeState.DRAINING, 7, REGISTRATION))
    assert not look(sql, CATALOG, Renewal(1, B, 8)).is_renewed
    assert end_lease(sql, row(sql))
    assert not look(sql, CATALOG, Renewal(1, A, 8)).is_renewed
    assert row(sql).view == 7


def test_a_lease_is_ended_as_it_was_seen(sql: Connection) -> None:
    take(sql, A, None)
    seen = row(sql)
    assert look(sql, CATALOG, Renewal(1, A, 6)).is_renewed
    assert not end_lease(sql, seen)
    assert end_lease(sql, row(sql))
    assert end_lease(sql, seen)
    take(sql, B, row(sql))
    assert not end_lease(sql, seen)
    assert row(sql).state is NodeState.LIVE


def test_an_epoch_is_claimed_by_one_node_and_repeatedly(sql: Connection) -> None:
    wanted = [Claim(PARTITION, TOPIC_ID, 3)]
    assert [log.attempt for log in claim(sql, 1, wanted).values()] == [1]
    assert not claim(sql, 2, wanted)
    assert [log.attempt for log in claim(sql, 1, wanted).values()] == [2]
    assert [log.leader_epoch for log in claim(sql, 2, [Claim(PARTITION, TOPIC_ID, 4)]).values()] == [4]
    assert not claim(sql, 1, wanted)
