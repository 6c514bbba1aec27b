"""The commands of `kohort fault`."""

from typing import Annotated, Any, get_type_hints

import typer

from kohort.cli.control.options import (
    PORT_DEFAULT,
    SECONDS,
    Address,
    Pairs,
    Scope,
    Timeout,
    TokenFile,
    control_client,
    fields_of,
    shown_fields,
)
from kohort.cli.options import AsJson
from kohort.cli.output import print_changes, print_rows

app = typer.Typer(
    name="fault",
    no_args_is_help=True,
    help="Let requests of clients fail, wait, or lose their answers (docs/testing.md).",
    epilog="Example: kohort serve --for-tests --control-port 9192, then: kohort fault add api=OffsetCommit "
    "error=COORDINATOR_LOAD_IN_PROGRESS times=2",
)
FaultId = Annotated[str, typer.Argument(metavar="FAULT", help="Id of a fault, as `add` prints it.")]
_COLUMNS = ("fault", "scope", "effect", "calls", "hits", "state", "fields")


@app.command(epilog="Example: kohort fault add api=Produce topic=orders disconnect=after on_call=3")
def add(fields: Pairs, control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False) -> None:
    """
    Add a fault: filters, a trigger, and one effect.

    Without a trigger it hits one request. docs/testing.md lists the fields.
    """
    from kohort.control.requests.faults import FaultSpec

    body = fields_of(fields, get_type_hints(FaultSpec))
    view = control_client(control, token_file).post("faults", body=body)
    print_changes("Fault {fault} was added", [_row(view)], is_json=is_json)


@app.command("list", epilog="Example: kohort fault list --json")
def list_faults(
    scope: Scope = None, control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False
) -> None:
    """List the faults, in the order in which they are asked."""
    views = control_client(control, token_file).get("faults", scope=scope)["faults"]
    print_rows(_COLUMNS, [_row(view) for view in views], is_json=is_json)


@app.command(epilog="Example: kohort fault wait fault-1-aa5d75 --hits 2")
def wait(
    fault: FaultId,
    hits: Annotated[int, typer.Option("--hits", metavar="N", min=1, help="Hits to wait for.")] = 1,
    timeout: Timeout = SECONDS,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Wait until a fault has so many hits."""
    view = control_client(control, token_file).get("faults", fault, wait=hits, timeout=timeout)
    print_changes("Fault {fault} has {hits} hits", [_row(view)], is_json=is_json)


@app.command(epilog="Example: kohort fault remove fault-1-aa5d75")
def remove(
    faults: Annotated[list[str], typer.Argument(metavar="FAULT...", help="Ids of faults.")],
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
) -> None:
    """Remove faults. One that is not there is no error."""
    client = control_client(control, token_file)
    for fault in faults:
        client.delete("faults", fault)


def _row(view: dict[str, Any]) -> dict[str, Any]:
    state = "removed" if view["is_removed"] else "spent" if view["is_spent"] else "active"
    return {
        "fault": view["id"],
        "scope": view["scope"],
        "effect": view["effect"],
        "calls": view["calls"],
        "hits": view["hits"],
        "state": state,
        "fields": shown_fields(view["spec"]),
    }
