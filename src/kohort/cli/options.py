"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from kohort.client.addresses import BOOTSTRAP

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="KOHORT_BOOTSTRAP",
        help="Address of a broker, or several separated by commas. Both names of the option mean the same.",
    ),
]
CommandConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar="KOHORT_COMMAND_CONFIG",
        help="Properties file with TLS and SASL settings, by Kafka's names: security.protocol=SASL_SSL and so on.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print a JSON array of objects instead of a table.")]

BOOTSTRAP_DEFAULT = BOOTSTRAP
SECONDS_MAX = 1_000_000
"""The longest time of an option, eleven days: as milliseconds it has 32 bits, and threads and sockets can wait it."""


def new_app(**settings: Any) -> typer.Typer:
    """Return an empty command line `kohort`, to which commands are added."""
    return typer.Typer(
        name="kohort", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None, **settings
    )
