"""Options that the commands of `kohort pipeline` share."""

import inspect
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kohort.cli.options import CommandConfig
from kohort.model.allocator import use_one_allocator

if TYPE_CHECKING:
    from kohort.pipeline.checkpoints.named import Named
    from kohort.pipeline.tables.burrow.evaluator import Rules

LogSource: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE",
        help="Data directory of Kohort or Apache Kafka, kafka://HOST:PORT, or postgresql://HOST/DATABASE.",
    ),
]
Groups: TypeAlias = Annotated[str | None, typer.Option(metavar="NAMES", help="Only these groups, separated by commas.")]


@dataclass(frozen=True)
class CommandOptions:
    """The shared options of commands, as typer reads them, and what a command adds to them (`_ADDED`)."""

    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="Data directory of Kohort or Apache Kafka (log.dirs), kafka://HOST:PORT, postgresql://HOST/DATABASE, or tables"
            " published by `run`.",
        ),
    ]
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="State at this instant: 2026-11-21T09:30:00 (UTC), or milliseconds since 1970.",
        ),
    ] = None
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Write the tables below this directory, or with table:SCHEMA into Spark's catalog."
        ),
    ] = None
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="NAME", help="With --out: parquet (default), or what Spark has: delta, iceberg, orc."
        ),
    ] = None
    report_file: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write an HTML report with charts.")
    ] = None
    checkpoints: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="NAME=DIR",
            help="The checkpoint of a Spark query, as a group of this name; repeatable. DIR may hold several.",
        ),
    ] = None
    config: CommandConfig = None
    engine: Annotated[
        str,
        typer.Option(
            metavar="ENGINE",
            help="spark, local (in this process, without Java), or auto: what answers first.",
        ),
    ] = "auto"
    master: Annotated[str | None, typer.Option(metavar="URL", help="Spark master, for Spark; default local[*].")] = None
    is_verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on standard error which engine is used, and why.")
    ] = False
    transactional_id: str | None = None
    verdict: str | None = None
    ends: str | None = None
    rules: "Rules | None" = None

    @property
    def named(self) -> "list[Named]":
        """
        Return the checkpoints of the option.

        Raises:
            ConfigError: one is not written NAME=DIR.
        """
        from kohort.pipeline.checkpoints.named import parse_named

        return [parse_named(one) for one in self.checkpoints or ()]

    @property
    def where(self) -> dict[str, str]:
        """Return the filter of rows: required values by column."""
        given = {name: getattr(self, name) for name in ("group", "transactional_id", "verdict")}
        return {name: value for name, value in given.items() if value is not None}


_FIRST = ("source", "as_json", "group")
"""Shared options that are listed before the options of the command."""
_ADDED = ("transactional_id", "verdict", "ends", "rules")


def on_source(
    *, source: Any = None, without: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """
    Add the shared options to a command. Its function receives them as `CommandOptions`, and its own options by name.

    Args:
        source: annotation of the SOURCE argument, if it is not that of `CommandOptions`.
        without: shared options that the command does not have.
    """

    hidden = {*_ADDED, *without, *(("file_format",) if "out" in without else ())}

    def decorated(command: Callable[..., None]) -> Callable[..., None]:
        shared = {name: one for name, one in inspect.signature(CommandOptions).parameters.items() if name not in hidden}
        if source is not None:
            shared["source"] = shared["source"].replace(annotation=source)
        own = [one for one in inspect.signature(command).parameters.values() if one.name != "options"]

        @wraps(command)
        def with_options(**values: Any) -> None:
            # Before Arrow is imported.
            use_one_allocator()
            given = {name: values.pop(name) for name in shared}
            given["source"] = _without_password(given["source"])
            command(CommandOptions(**given), **values)

        first = [one for name, one in shared.items() if name in _FIRST]
        rest = [one for name, one in shared.items() if name not in _FIRST]
        parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*first, *own, *rest)]
        needs = "kohort[pipeline]" if "engine" in hidden else "kohort[tables]"
        more = "" if {"engine", "master"} & hidden else " Spark, for large logs, needs kohort[pipeline]."
        with_options.__doc__ = f"{inspect.getdoc(command)}\n\nNeeds pip install '{needs}'.{more}"
        # typer reads both.
        with_options.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters}
        return with_options

    return decorated


def _without_password(source: str) -> str:
    """
    Return a source without a password, which its messages and tables must not show: libpq and the processes of Spark take it
    from the environment.

    Raises:
        ConfigError: the address of a store cannot be read.
    """
    from kohort.pipeline.sources.postgres.address import is_database, split_password

    if not is_database(source):
        return source
    source, password = split_password(source)
    if password is not None:
        os.environ["PGPASSWORD"] = password
    return source
