"""`kohort store`: make, upgrade, check and copy a store in a PostgreSQL database. Commands import the driver when they run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kohort.cli.output import echo, print_json
from kohort.model.errors import ConfigError, StorageError
from kohort.model.leases import LEASE_MS, LEASE_MS_MAX, LEASE_MS_MIN

if TYPE_CHECKING:
    from kohort.storage.logs.copied import LogSource, LogTarget
    from kohort.storage.postgres.connect import Connection, Target

app = typer.Typer(
    name="store", no_args_is_help=True, help="Make, upgrade, check and copy a store in a PostgreSQL database."
)

_PROBLEMS_FOUND = 1
_EXAMPLE = "Example: kohort store {} postgresql://db.example/kohort"

Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the database, as postgresql://HOST/DATABASE.")]


@contextmanager
def connected(url: str) -> Iterator[tuple[Connection, Target]]:
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
def init_store(
    url: Url,
    lease_ms: Annotated[
        int,
        typer.Option(
            "--lease-ms",
            metavar="MS",
            min=LEASE_MS_MIN,
            max=LEASE_MS_MAX,
            help="Duration of the leases of all nodes on this store. When a node dies, its partitions have other leaders some "
            "seconds after that time. A node that cannot reach the database for so long answers nothing.",
        ),
    ] = LEASE_MS,
) -> None:
    """Make the tables of a store, in a schema `kohort` of the database."""
    with connected(url) as (connection, target):
        from kohort.storage.postgres.schema import init

        cluster_id = init(connection, target.schema, target.shown, lease_ms)
        echo(f"{target.shown} has a store now: cluster {cluster_id}")


@app.command("upgrade", epilog=_EXAMPLE.format("upgrade"))
def upgrade_store(url: Url) -> None:
    """Bring the tables to the version of this Kohort. Stop every node before."""
    with connected(url) as (connection, target):
        from kohort.storage.postgres.connect import check_stopped
        from kohort.storage.postgres.schema import upgrade

        check_stopped(connection, target.shown)
        before, after = upgrade(connection, target.shown)
        echo(f"{target.shown} has version {after}" + (f", and had {before}" if before < after else " already"))


@app.command("verify", epilog=_EXAMPLE.format("verify"))
def verify_store(url: Url) -> None:
    """Read every batch of every log, and check it. Changes nothing. Exits with 1 if there is damage."""
    with connected(url) as (connection, target):
        from kohort.storage.postgres.connect import check_schema
        from kohort.storage.postgres.tools.verify import verify

        check_schema(connection, target.shown)
        result = verify(connection)
        for problem in result.problems:
            echo(problem)
        echo(
            f"{result.logs} logs, {result.batches} batches, {result.size_bytes} bytes: {len(result.problems)} problems"
        )
    if result.problems:
        raise typer.Exit(_PROBLEMS_FOUND)


@app.command("accept", epilog=_EXAMPLE.format("accept"))
def accept_store(url: Url) -> None:
    """
    Let the nodes of this machine go on with what the database has now, though it is an older copy: a backup was restored.

    Run it as the user of the node, and with its XDG_STATE_HOME.
    """
    with connected(url) as (connection, target):
        from kohort.broker.catalog.catalog import CATALOG
        from kohort.storage.postgres.connect import check_schema
        from kohort.storage.postgres.known import KnownDatabase

        path = KnownDatabase(CATALOG).accept(connection, check_schema(connection, target.shown))
        echo(f"{path} has what {target.shown} is now")


@app.command("copy", epilog="Example: kohort store copy /var/lib/kohort postgresql://db.example/kohort")
def copy_store(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A data directory, or the address of a database.")],
    target: Annotated[
        str, typer.Argument(metavar="TO", help="The other one: a database with an empty store, or an empty directory.")
    ],
    node_id: Annotated[int, typer.Option("--node-id", min=0, help="The id of the node whose directory is made.")] = 1,
    is_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON.")] = False,
) -> None:
    """
    Copy all logs between a data directory and a database, while no node runs, and compare them at the end.

    The cluster id goes with them. An interrupted copy is refused at the start of a node, and is made anew.
    """
    to_database = _is_address(target)
    if to_database == _is_address(source):
        raise ConfigError(
            "a copy is between a data directory and a database: give one path, and one address postgresql://..."
        )
    from kohort.storage.disk.copying import DirectorySource, DirectoryTarget
    from kohort.storage.logs.copied import copy_logs

    with connected(target if to_database else source) as (connection, database), ExitStack() as opened:
        from kohort.storage.postgres.connect import check_schema, check_stopped, try_lock
        from kohort.storage.postgres.tools.copying import StoreSource, StoreTarget

        cluster_id = check_schema(connection, database.shown)
        check_stopped(connection, database.shown)
        if not try_lock(connection, cluster_id):
            raise ConfigError(f"another copy uses the store in {database.shown}")
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        from_logs: LogSource
        to_logs: LogTarget
        if to_database:
            to_logs = StoreTarget(connection, database.shown, source)
            from_logs = opened.enter_context(closing(DirectorySource(Path(source))))
        else:
            # One snapshot: what is read belongs together.
            opened.enter_context(connection.transaction())
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            from_logs = StoreSource(connection, cluster_id)
            to_logs = opened.enter_context(closing(DirectoryTarget(Path(target), database.shown, node_id=node_id)))
        with _progress() as show:
            try:
                copied = copy_logs(from_logs, to_logs, show)
            except StorageError as error:
                raise ConfigError(f"{error}. The copy cannot be used: make it anew") from None
    if is_json:
        print_json(copied)
    else:
        echo(f"copied and compared {copied.logs} logs, {copied.batches} batches, {copied.size_bytes} bytes")


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("Copying and comparing"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as shown:
        task = shown.add_task("copy")
        yield lambda done, total: shown.update(task, completed=done, total=total)


def _is_address(text: str) -> bool:
    return text.startswith(("postgresql://", "postgres://"))
