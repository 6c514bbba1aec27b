"""What every command that asks a cluster shares: where the cluster is, how to connect, how long to wait."""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from kohort.cli.options import BOOTSTRAP_DEFAULT, Bootstrap, CommandConfig
from kohort.client.cluster import Client
from kohort.client.connection import TIMEOUT_S
from kohort.client.security import KNOWN, PLAINTEXT, Security, read_properties


class _Given(NamedTuple):
    """The shared options, as they were given."""

    bootstrap: str
    command_config: Path | None
    timeout_s: float


_given: ContextVar[_Given] = ContextVar("given")


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a cluster; its function calls `cluster()` and does not see them."""

    @wraps(command)
    def with_options(**values: Any) -> None:
        _given.set(_Given(**{name: values.pop(name) for name in _Given._fields}))
        command(**values)

    own = inspect.signature(command)
    shared = inspect.signature(_options).parameters
    # Both are what typer reads.
    with_options.__signature__ = own.replace(parameters=[*own.parameters.values(), *shared.values()])  # type: ignore[attr-defined]
    with_options.__annotations__ = {**command.__annotations__, **_options.__annotations__}
    return with_options


def cluster() -> Client:
    """
    The cluster that the running command was told of; a context manager.

    Raises:
        ConfigError: the address is none, or the file says how to connect in a way that cannot be.
    """
    bootstrap, path, timeout_s = _given.get()
    security = PLAINTEXT
    if path is not None:
        properties = read_properties(path)
        # The files of Kafka's tools hold much else.
        for name in sorted(properties.keys() - KNOWN):
            typer.echo(f"{path}: {name} has no meaning here", err=True)
        security = Security.parse(properties)
    return Client(bootstrap, timeout_s, security)


def _options(
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for one answer.")
    ] = TIMEOUT_S,
) -> None:
    """Only its signature counts."""
