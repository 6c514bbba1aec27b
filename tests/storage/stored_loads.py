"""Loads of coordinators from a database, in tests whose logs are in memory: each load finds the records of its log there."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from uuid import UUID

import pytest

from kohort.model.ids import TopicPartition
from kohort.storage.postgres import PostgresStore
from kohort.storage.postgres.connect import Connection, Target, connect
from kohort.storage.postgres.loading import LoadedLog
from kohort.storage.postgres.log import PostgresView
from kohort.storage.postgres.statements import Byteas, Int8s
from kohort.testing import FaultyLog
from kohort.wire.batches import read_header
from tests.storage.database import shared_database
from tests.storage.owner import Owner

_numbers = count(1)


@cache
def _store() -> tuple[PostgresStore, Connection]:
    schema = shared_database().new_schema()
    return Owner().postgres(schema), connect(Target(shared_database().url, schema))


def stored_view(batches: Sequence[bytes], end_offset: int) -> PostgresView:
    """A log in a database with these batches, as they are."""
    store, sql = _store()
    log_id = next(_numbers)
    headers = [read_header(batch) for batch in batches]
    columns = (
        Int8s([log_id] * len(batches)),
        Int8s(header.base_offset for header in headers),
        Int8s(header.next_offset - 1 for header in headers),
        Int8s(header.max_timestamp for header in headers),
        Byteas(batches),
    )
    sql.execute(
        b"INSERT INTO batch (log_id, base_offset, last_offset, max_timestamp, data) SELECT * FROM unnest($1, $2, $3, $4, $5)",
        columns,
        prepare=True,
        binary=True,
    )
    size_bytes = sum(map(len, batches))
    place = TopicPartition("stored", log_id)
    return store.log_of(LoadedLog(log_id, place, UUID(int=log_id), 0, end_offset, 0, 0, size_bytes, 0)).view()


@contextmanager
def loads_from_database() -> Iterator[list[PostgresView]]:
    """Let every load of a `FaultyLog` read a database; these reads are in the list, as they come."""
    views: list[PostgresView] = []

    def load_view(log: FaultyLog) -> PostgresView:
        error, log.fail_next_read = log.fail_next_read, None
        if error is not None:
            raise error
        views.append(stored_view(log.batches, log.end_offset))
        return views[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FaultyLog, "load_view", load_view)
        yield views
