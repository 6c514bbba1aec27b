"""The PostgreSQL server of tests."""

import atexit
from functools import cache

from kohort_lab.database import USER, Database

__all__ = ["USER", "Database", "shared_database"]


@cache
def shared_database() -> Database:
    """One server for the tests of a process, which ends with it."""
    database = Database()
    atexit.register(database.close)
    return database
