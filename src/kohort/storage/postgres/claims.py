"""Statements of nodes that share a store: their rows, and the logs that they claim."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

import msgspec

from kohort.model.ids import TopicPartition
from kohort.storage.postgres.connect import Connection
from kohort.storage.postgres.loading import LoadedLog, with_dependents
from kohort.storage.postgres.statements import Int8s
from kohort.storage.shared import (
    CatalogRow,
    Claim,
    Look,
    NodeRow,
    NodeState,
    Registration,
    Renewal,
)

CHANNEL: Final = "kohort"
"""Of the hints that other nodes are given."""

_LEASE: Final = b"SELECT lease_ms FROM store WHERE id = 1"
_RENEW: Final = b"""
UPDATE node SET counter = counter + 1, view = $3, state = $4 WHERE node_id = $1 AND incarnation = $2 AND state <> 2
"""
_NODES: Final = b"SELECT node_id, incarnation, counter, state, view, registration, drained FROM node"
_CATALOG: Final = b"""
SELECT leader_id, leader_epoch, next_offset FROM log WHERE topic = $1 AND partition = $2 AND state = 0
"""
_JOIN: Final = b"""
INSERT INTO node (node_id, incarnation, counter, state, view, registration) VALUES ($1, $2, 0, 0, $3, $4)
ON CONFLICT (node_id) DO UPDATE SET incarnation = excluded.incarnation, counter = node.counter + 1, state = 0,
  view = excluded.view, registration = excluded.registration
WHERE node.incarnation = $5 AND node.counter = $6
"""
"""The counter never falls, so a statement that takes effect late finds another row than the one that it compares with."""
_END_LEASE: Final = b"UPDATE node SET state = 2 WHERE node_id = $1 AND incarnation = $2 AND (counter = $3 OR state = 2)"
_MAKE_ROWS: Final = b"""
INSERT INTO log (topic, partition, topic_id)
SELECT * FROM unnest($1::text[], $2::integer[], $3::uuid[])
ON CONFLICT (topic, partition, topic_id) WHERE state = 0 DO NOTHING
"""
_CLAIM: Final = b"""
WITH wanted AS (
  SELECT * FROM unnest($1::text[], $2::integer[], $3::uuid[], $4::integer[])
    AS w (topic, partition, topic_id, leader_epoch)
), locked AS (
  SELECT log.log_id, wanted.leader_epoch FROM log JOIN wanted
    ON log.topic = wanted.topic AND log.partition = wanted.partition AND log.topic_id = wanted.topic_id
  WHERE log.state = 0
    AND (log.leader_epoch < wanted.leader_epoch OR (log.leader_epoch = wanted.leader_epoch AND log.leader_id = $5))
  ORDER BY log.log_id FOR NO KEY UPDATE OF log
)
UPDATE log SET leader_epoch = locked.leader_epoch, leader_id = $5, attempt = log.attempt + 1
FROM locked WHERE log.log_id = locked.log_id
RETURNING log.log_id, log.topic, log.partition, log.topic_id, log.leader_epoch, log.next_offset, log.start_offset,
  log.attempt, log.size_bytes, log.clean_offset
"""
"""The next epoch of a log is taken once: by the node that the catalog names, which may repeat a claim whose outcome it lost."""
_NEW_EPOCHS: Final = b"""
INSERT INTO epoch (log_id, start_offset, leader_epoch) SELECT * FROM unnest($1, $2, $3)
ON CONFLICT (log_id, start_offset) DO UPDATE SET leader_epoch = excluded.leader_epoch
"""
_BATCHES: Final = b"""
SELECT batch.data FROM batch JOIN log ON log.log_id = batch.log_id
WHERE log.topic = $1 AND log.partition = $2 AND log.state = 0 AND batch.last_offset >= $3 AND batch.last_offset < $4
ORDER BY batch.last_offset LIMIT $5
"""
_BATCHES_MAX: Final = 200
_STORED_EPOCHS: Final = b"SELECT topic, partition, topic_id, leader_epoch FROM log WHERE state = 0"
_SET_ASIDE: Final = b"UPDATE log SET state = 1 WHERE topic = $1 AND partition = $2 AND topic_id = $3 AND state = 0"
_REMOVE_TOPIC: Final = b"UPDATE log SET state = 2 WHERE topic = $1 AND topic_id = $2 AND state = 0 RETURNING log_id"
_decode: Final = msgspec.json.Decoder(Registration).decode


def lease_ms(connection: Connection) -> int:
    """The duration of leases, which all nodes of a store have in common."""
    row = connection.execute(_LEASE).fetchone()
    assert row is not None, "the schema was checked"
    return int(row[0])


def look(connection: Connection, catalog: TopicPartition, renewal: Renewal | None) -> Look:
    """Renew the lease, and then read the rows."""
    is_renewed = False
    if renewal is not None:
        values = (renewal.node_id, renewal.incarnation, renewal.view, int(renewal.state))
        is_renewed = connection.execute(_RENEW, values).rowcount > 0
        if renewal.state is not NodeState.LIVE:
            hint(connection)
    nodes = {
        row[0]: NodeRow(row[0], row[1], row[2], NodeState(row[3]), row[4], _decode(row[5]), row[6])
        for row in connection.execute(_NODES)
    }
    found = connection.execute(_CATALOG, (catalog.topic, catalog.partition)).fetchone()
    return Look(nodes, CatalogRow() if found is None else CatalogRow(*found), is_renewed)


def join(connection: Connection, renewal: Renewal, registration: Registration, replaced: NodeRow | None) -> bool:
    """Take the row of a node; False if another process has it."""
    values = (
        renewal.node_id,
        renewal.incarnation,
        renewal.view,
        msgspec.json.encode(registration),
        None if replaced is None else replaced.incarnation,
        None if replaced is None else replaced.counter,
    )
    is_joined = connection.execute(_JOIN, values).rowcount > 0
    if is_joined:
        hint(connection)
    return is_joined


def hint(connection: Connection) -> None:
    """Let the other nodes look at once. It takes a lock of the whole database, so nothing that happens often does it."""
    connection.execute(b"SELECT pg_notify($1, '')", (CHANNEL,))


def end_lease(connection: Connection, row: NodeRow) -> bool:
    """End a lease if its row is as it was seen."""
    return connection.execute(_END_LEASE, (row.node_id, row.incarnation, row.counter)).rowcount > 0


def claim(connection: Connection, node_id: int, claims: Sequence[Claim]) -> dict[TopicPartition, LoadedLog]:
    """
    Lead logs, and read what they have become: in one transaction, so that nobody else writes to them in between.

    Raises:
        CorruptError: the state of a producer cannot be read.
    """
    names = (
        [each.topic_partition.topic for each in claims],
        [each.topic_partition.partition for each in claims],
        [each.topic_id for each in claims],
    )
    with connection.transaction():
        connection.execute(_MAKE_ROWS, names)
        rows = connection.execute(_CLAIM, (*names, [each.leader_epoch for each in claims], node_id)).fetchall()
        logs = with_dependents(connection, rows)
        for log in logs:
            log.epochs.assign(log.leader_epoch, log.next_offset)
        connection.execute(
            _NEW_EPOCHS,
            (
                Int8s(log.log_id for log in logs),
                Int8s(log.next_offset for log in logs),
                Int8s(log.leader_epoch for log in logs),
            ),
        )
    return {log.topic_partition: log for log in logs}


def read_batches(connection: Connection, place: TopicPartition, offset: int, up_to: int, bytes_max: int) -> bytes:
    """Whole batches of a log: as many as fit, and at least one if there is one."""
    data: list[bytes] = []
    size = 0
    for (batch,) in connection.execute(_BATCHES, (*place, offset, up_to, _BATCHES_MAX), binary=True):
        size += len(batch)
        if data and size > bytes_max:
            break
        data.append(batch)
    return b"".join(data)


def stored_epochs(connection: Connection) -> list[tuple[str, int, UUID, int]]:
    """Topic, partition, topic id and leader epoch of each log in use."""
    return connection.execute(_STORED_EPOCHS).fetchall()


def set_aside(connection: Connection, topic_partition: TopicPartition, topic_id: UUID) -> None:
    """Keep a log that belongs to no topic."""
    connection.execute(_SET_ASIDE, (*topic_partition, topic_id))


def remove_topic(connection: Connection, name: str, topic_id: UUID) -> list[tuple[int, None]]:
    """Delete the logs of a topic; the ids of their rows, all of whose batches are to be removed."""
    return [(row[0], None) for row in connection.execute(_REMOVE_TOPIC, (name, topic_id))]
