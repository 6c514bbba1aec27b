"""Connections of readers. Each statement is a transaction of its own, so no snapshot holds up the vacuum of the database."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from kohort.model.errors import ConfigError
from kohort.pipeline.sources.postgres.address import check_address

if TYPE_CHECKING:
    from kohort.storage.postgres.connect import Connection, Target

_NAME = "kohort-pipeline"
_SETTINGS = (
    b"SET default_transaction_read_only = on",
    # Without statistics of a table that has grown, the database would sort the rest of a log for each piece of it.
    b"SET enable_bitmapscan = off",
)


@contextmanager
def opened(path: str) -> Iterator["Connection"]:
    """
    Provide a connection to a store that can only read. A standby is good enough, and so is the right to SELECT.

    Raises:
        ConfigError: the address has a password, the driver is missing, the database cannot be reached or refuses a statement,
            or there is no store of this version.
    """
    target = _target(path)
    from kohort.storage.postgres.connect import check_schema, connect_once

    with refusals(path), connect_once(target) as connection:
        for setting in _SETTINGS:
            connection.execute(setting)
        check_schema(connection, target.shown)
        yield connection


def refusals(path: str) -> AbstractContextManager[None]:
    """
    Turn errors of the database into sentences.

    Raises:
        ConfigError: the database refuses a statement, or does not answer.
    """
    target = _target(path)
    from kohort.storage.postgres.connect import refused

    return refused(target)


def _target(path: str) -> "Target":
    check_address(path)
    try:
        from kohort.storage.postgres.connect import Target
        from kohort.storage.postgres.schema import SCHEMA
    except ImportError as exc:
        raise ConfigError(
            f"a store in PostgreSQL needs {exc.name}, also on executors of Spark: pip install 'kohort[postgres]'"
        ) from None
    return Target(path, SCHEMA, _NAME)
