"""The command `kohort event`."""

from typing import Annotated

import typer

from kohort.cli.control.options import PORT_DEFAULT, Address, TokenFile, control_client, fields_of
from kohort.cli.options import AsJson
from kohort.cli.output import echo, print_json

EPILOG = "Example: kohort event expire_member group=billing member=worker-1"


def event(
    name: Annotated[str, typer.Argument(metavar="EVENT", help="Name of an event; docs/testing.md lists them.")],
    fields: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Fields of the event.")] = None,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Let something happen to the broker: a member expires, a coordinator moves, a producer is fenced, a disk is full."""
    types = {"broker": int, "partition": int, "timeout": float}
    body = fields_of(fields, types) if fields else {}
    happened = control_client(control, token_file).post("events", name, body=body)
    if is_json:
        print_json([happened])
    else:
        echo(" ".join(str(value) if key == "event" else f"{key}={value}" for key, value in happened.items()))
