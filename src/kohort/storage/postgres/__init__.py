"""
Logs in a PostgreSQL database: one row a record batch, one row a log, and one statement for the appends of a turn.

Imported when a store is named: by `kohort serve --store`, `kohort store` and `kohort pipeline`.
"""

from kohort.model.errors import ConfigError

try:
    import psycopg as _psycopg  # noqa: F401 -- the modules below need it
except ImportError as error:
    raise ConfigError(
        f"a store in PostgreSQL needs the driver psycopg, which cannot be imported ({error}): pip install 'kohort[postgres]'"
    ) from None

from kohort.storage.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
