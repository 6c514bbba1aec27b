"""Recorded logs in a store: the batches of a data directory, written into a database of their own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

from kohort.model.ids import uuid_from_text
from kohort.pipeline.decode.batches import scan
from kohort.pipeline.decode.log_starts import log_starts
from kohort.pipeline.decode.segments import Segment, by_partition, list_segments
from kohort.pipeline.decode.storage import mapped
from kohort.pipeline.sources.topic_ids import id_beside
from kohort.storage.postgres.connect import Connection, Target, connect
from kohort.storage.postgres.schema import SCHEMA, init
from tests.pipeline.sources.growing import TOPIC, GrowingLog
from tests.storage.database import shared_database

TOPIC_ID = UUID(int=33)
OTHER_ID = UUID(int=34)

_numbers = count()


@contextmanager
def new_store() -> Iterator[str]:
    """An empty store in a database of its own; the address."""
    database, name = shared_database(), f"pipeline{next(_numbers)}"
    with database.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        url = database.url.replace("/postgres?", f"/{name}?")
        with sql(url) as own:
            init(own, SCHEMA, url)
        yield url
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def sql(url: str) -> Connection:
    return connect(Target(url, SCHEMA))


def load(url: str, directory: Path) -> None:
    """Write the batches of a data directory into an empty store, with the bounds and topic ids of its logs."""
    segments = list_segments(directory)
    starts = log_starts(segments)
    with sql(url) as connection, connection.transaction():
        for place, log in by_partition(segments).items():
            load_log(connection, place, log, starts[place])


def load_log(connection: Connection, place: tuple[str, int], segments: Sequence[Segment], start: int) -> int:
    """Write one log, and return its id."""
    batches = [one for segment in segments for one in batches_of(segment)]
    end = batches[-1][1] + 1 if batches else segments[-1].base_offset
    text = id_beside(Path(segments[0].path).parent)
    row = (
        *place,
        UUID(int=0) if text is None else uuid_from_text(text),
        end,
        start,
        sum(len(one[3]) for one in batches),
    )
    found = connection.execute(
        b"INSERT INTO log (topic, partition, topic_id, next_offset, start_offset, size_bytes, leader_epoch)"
        b" VALUES ($1, $2, $3, $4, $5, $6, 0) RETURNING log_id",
        row,
    ).fetchone()
    assert found is not None
    add_batches(connection, found[0], [one for one in batches if one[1] >= start])
    return int(found[0])


def add_batches(connection: Connection, log_id: int, batches: Sequence[tuple[int, int, int, bytes]]) -> None:
    with connection.cursor().copy(
        b"COPY batch (log_id, base_offset, last_offset, max_timestamp, data) FROM STDIN"
    ) as copy:
        for one in batches:
            copy.write_row((log_id, *one))


def batches_of(segment: Segment) -> Iterator[tuple[int, int, int, bytes]]:
    data = mapped(segment.path)
    return batches_in(data) if len(data) else iter(())


def batches_in(data: Any) -> Iterator[tuple[int, int, int, bytes]]:
    """Base offset, last offset, largest timestamp and bytes of each batch, also of a damaged one."""
    found = scan(data, check_crc=False)
    columns: list[Any] = [found.headers["base_offset"], found.next_offsets - 1, found.headers["max_timestamp"]]
    for base, last, at_ms, begin, end in zip(*columns, found.positions, found.ends, strict=True):
        yield int(base), int(last), int(at_ms), found.data[begin:end].tobytes()


class GrowingRows(GrowingLog):
    """A log in a store: a `GrowingLog` whose batches are rows."""

    def __init__(self, url: str, partition: int = 0, topic_id: UUID = TOPIC_ID, topic: str = TOPIC) -> None:
        self.next_offset = 0
        self.connection = sql(url)
        found = self.connection.execute(
            b"INSERT INTO log (topic, partition, topic_id, leader_epoch) VALUES ($1, $2, $3, 0) RETURNING log_id",
            (topic, partition, topic_id),
        ).fetchone()
        assert found is not None
        self.log_id: int = found[0]

    def append(self, raw: bytes) -> None:
        rows = list(batches_in(raw))
        add_batches(self.connection, self.log_id, rows)
        self.update("next_offset = greatest(next_offset, $2), size_bytes = size_bytes + $3", rows[-1][1] + 1, len(raw))

    def update(self, what: str, *values: int) -> None:
        self.connection.execute(f"UPDATE log SET {what} WHERE log_id = $1".encode(), (self.log_id, *values))

    def remove_before(self, offset: int) -> None:
        """As retention does: the log start moves, and batches before it go later."""
        self.update("start_offset = $2", offset)
        self.connection.execute(b"DELETE FROM batch WHERE log_id = $1 AND last_offset < $2", (self.log_id, offset))

    def delete(self) -> None:
        self.update("state = 2")
        self.connection.execute(b"DELETE FROM batch WHERE log_id = $1", (self.log_id,))

    def close(self) -> None:
        self.connection.close()
