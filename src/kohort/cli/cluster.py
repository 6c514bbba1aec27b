"""The options of every command that talks to a cluster: bootstrap address, security, timeout."""

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from kohort.cli.options import BOOTSTRAP_DEFAULT, SECONDS_MAX, Bootstrap, CommandConfig
from kohort.client.cluster import Client
from kohort.client.connection import TIMEOUT_S
from kohort.client.security import PLAINTEXT, SUPPORTED_CONFIGS, Security, read_properties

STARTING_S = 2.0
"""The time that a command waits for a broker that was started just before it, as in a script."""


class _ClusterOptions(NamedTuple):
    """Values of the shared options."""

    bootstrap: str
    command_config: Path | None
    timeout_s: float


_current: ContextVar[_ClusterOptions] = ContextVar("cluster_options")


class ClusterApp(typer.Typer):
    """Commands that talk to a cluster: all of them have the shared options."""

    def __init__(self, name: str, **settings: Any) -> None:
        super().__init__(name=name, no_args_is_help=True, rich_markup_mode=None, **settings)

    def command(self, *arguments: Any, **settings: Any) -> Callable[[Any], Any]:
        register = super().command(*arguments, **settings)
        return lambda command: register(with_cluster_options(command))


def with_cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command. The command calls `open_client()`, which reads them."""

    @wraps(command)
    def with_options(**values: Any) -> None:
        _current.set(_ClusterOptions(**{name: values.pop(name) for name in _ClusterOptions._fields}))
        command(**values)

    own = inspect.signature(command)
    shared = inspect.signature(_options).parameters
    # typer reads both.
    with_options.__signature__ = own.replace(parameters=[*own.parameters.values(), *shared.values()])  # type: ignore[attr-defined]
    with_options.__annotations__ = {**command.__annotations__, **_options.__annotations__}
    return with_options


def open_client() -> Client:
    """
    Make a client with the options of the running command. A context manager.

    Raises:
        ConfigError: the bootstrap address or the `--command-config` file is invalid.
    """
    bootstrap, path, timeout_s = _current.get()
    security = PLAINTEXT
    if path is not None:
        properties = read_properties(path)
        for name in sorted(properties.keys() - SUPPORTED_CONFIGS):
            typer.echo(f"{path}: {name} is ignored", err=True)
        security = Security.parse(properties)
    return Client(bootstrap, timeout_s, security, starting_s=min(STARTING_S, timeout_s))


def _options(
    *,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    command_config: CommandConfig = None,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.1, max=SECONDS_MAX, help="Longest time to wait for one response."
        ),
    ] = TIMEOUT_S,
) -> None:
    """Declare the shared options. Only the signature is used."""
