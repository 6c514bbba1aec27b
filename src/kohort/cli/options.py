"""Options that commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

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
        help="A broker of the cluster; several with commas between. Both names mean the same.",
    ),
]
CommandConfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--command-config",
        metavar="FILE",
        envvar="KOHORT_COMMAND_CONFIG",
        help="How to connect with TLS or SASL, in Kafka's names: security.protocol=SASL_SSL and so on.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print an array of objects instead of a table.")]

BOOTSTRAP_DEFAULT = BOOTSTRAP
