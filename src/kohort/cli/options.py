"""Options that all commands share."""

from typing import Annotated, TypeAlias

import typer

from kohort.client.addresses import BOOTSTRAP

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="KOHORT_BOOTSTRAP",
        help="A broker of the cluster; several with commas between.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print an array of objects instead of a table.")]
TimeoutS: TypeAlias = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="How long to wait for one answer.")
]

BOOTSTRAP_DEFAULT = BOOTSTRAP
