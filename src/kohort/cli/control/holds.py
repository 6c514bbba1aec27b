"""The commands of `kohort hold`."""

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
    name="hold",
    no_args_is_help=True,
    help="Hold requests of clients, their answers, or a point inside the broker (docs/testing.md).",
    epilog="Example: kohort hold add api=EndTxn transactional_id=billing, then: kohort hold release HOLD",
)
HoldId = Annotated[str, typer.Argument(metavar="HOLD", help="Id of a hold, as `add` prints it.")]
_COLUMNS = ("hold", "scope", "waiting", "hits", "state", "fields")


@app.command(epilog="Example: kohort hold add api=OffsetCommit group=billing at=reply")
def add(fields: Pairs, control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False) -> None:
    """
    Hold requests (at=request), answers (at=reply), or what comes to a point inside the broker.

    The points are append, flush, marker.write, fetch.completion and coordinator.load, which take topic and partition, and
    rebalance.completion, which takes group.

    A hold has a lease, 60 seconds by default, after which it ends by itself.
    """
    from kohort.control.requests.holds import HoldSpec

    body = fields_of(fields, get_type_hints(HoldSpec))
    view = control_client(control, token_file).post("holds", body=body)
    print_changes("Hold {hold} was added", [_row(view)], is_json=is_json)


@app.command("list", epilog="Example: kohort hold list --json")
def list_holds(
    scope: Scope = None, control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False
) -> None:
    """List the holds, and how many each holds."""
    views = control_client(control, token_file).get("holds", scope=scope)["holds"]
    print_rows(_COLUMNS, [_row(view) for view in views], is_json=is_json)


@app.command(epilog="Example: kohort hold wait hold-1-aa5d75 --count 2")
def wait(
    hold: HoldId,
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="How many have to be held.")] = 1,
    timeout: Timeout = SECONDS,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Wait until so many are held. The lease begins anew."""
    view = control_client(control, token_file).get("holds", hold, wait=count, timeout=timeout)
    print_changes("Hold {hold} holds {waiting}", [_row(view)], is_json=is_json)


@app.command(epilog="Example: kohort hold release hold-1-aa5d75 --count 1")
def release(
    hold: HoldId,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=0, help="The first ones only; the hold goes on.")
    ] = None,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Let all go, and end the hold; with --count the first ones only."""
    body = {} if count is None else {"count": count}
    view = control_client(control, token_file).post("holds", hold, "release", body=body)
    print_changes("Hold {hold} holds {waiting}", [_row(view)], is_json=is_json)


def _row(view: dict[str, Any]) -> dict[str, Any]:
    return {
        "hold": view["id"],
        "scope": view["scope"],
        "waiting": view["waiting"],
        "hits": view["hits"],
        "state": "ended" if view["is_ended"] else "active",
        "fields": shown_fields(view["spec"]),
    }
