"""`kohort store`: make, upgrade and check a store in a PostgreSQL database. The driver is imported when a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli.output import echo

if TYPE_CHECKING:
    from kohort.storage.postgres.connect import Connection, Target

app = typer.Typer(name="store", no_args_is_help=True, help="Make, upgrade and check a store in a PostgreSQL database.")

_PROBLEMS_FOUND = 1
_EXAMPLE = "Example: kohort store {} postgresql://db.example/kohort"

Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the database, as postgresql://HOST/DATABASE.")]


@contextmanager
def _connected(url: str) -> Iterator[tuple[Connection, Target]]:
    """
    Raises:
        ConfigError: the database cannot be used, or refuses a statement.
    """
    from kohort.storage.postgres.connect import Target, check_promises, connect_once, refused
    from kohort.storage.postgres.schema import SCHEMA

    target = Target(url, SCHEMA)
    with refused(target), connect_once(target) as connection:
        check_promises(connection, target.shown)
        connection.execute("SET statement_timeout = 0")  # a large store is read for minutes
        yield connection, target


@app.command("init", epilog=_EXAMPLE.format("init"))
def init_store(url: Url) -> None:
    """Make the tables of a store, in a schema `kohort` of the database."""
    with _connected(url) as (connection, target):
        from kohort.storage.postgres.schema import init

        cluster_id = init(connection, target.schema, target.shown)
        echo(f"{target.shown} has a store now: cluster {cluster_id}")


@app.command("upgrade", epilog=_EXAMPLE.format("upgrade"))
def upgrade_store(url: Url) -> None:
    """Bring the tables to the version of this Kohort. Stop the node before."""
    with _connected(url) as (connection, target):
        from kohort.storage.postgres.schema import upgrade

        before, after = upgrade(connection, target.shown)
        echo(f"{target.shown} has version {after}" + (f", and had {before}" if before < after else " already"))


@app.command("verify", epilog=_EXAMPLE.format("verify"))
def verify_store(url: Url) -> None:
    """Read every batch of every log, and check it. Changes nothing. Exits with 1 if there is damage."""
    with _connected(url) as (connection, target):
        from kohort.storage.postgres.connect import check_schema
        from kohort.storage.postgres.verify import verify

        check_schema(connection, target.shown)
        result = verify(connection)
        for problem in result.problems:
            echo(problem)
        echo(
            f"{result.logs} logs, {result.batches} batches, {result.size_bytes} bytes: {len(result.problems)} problems"
        )
    if result.problems:
        raise typer.Exit(_PROBLEMS_FOUND)
