"""The commands of `kohort clock` and `kohort snapshot`, and `kohort reset`."""

from typing import Annotated, Any

import typer

from kohort.cli.control.options import PORT_DEFAULT, Address, Scope, TokenFile, control_client
from kohort.cli.options import SECONDS_MAX, AsJson
from kohort.cli.output import echo, print_changes, print_json, print_rows

clock = typer.Typer(
    name="clock",
    no_args_is_help=True,
    help="Let the time of a broker with --virtual-time go on (docs/testing.md).",
    epilog="Example: kohort serve --for-tests --virtual-time --control-port 9192, then: kohort clock advance 45",
)
snapshot = typer.Typer(
    name="snapshot",
    no_args_is_help=True,
    help="Take snapshots of a broker in memory, and go back to them (docs/testing.md).",
    epilog="Example: kohort snapshot take, then: kohort snapshot restore SNAPSHOT",
)
ADVANCE_SECONDS_MAX = 10 * 365 * 86_400
"""Ten years, as the control port says."""
RESET_EPILOG = "Example: kohort reset"
SnapshotId = Annotated[str, typer.Argument(metavar="SNAPSHOT", help="Id of a snapshot, as `take` prints it.")]


@clock.command(epilog="Example: kohort clock advance 604800")
def advance(
    seconds: Annotated[
        float, typer.Argument(metavar="SECONDS", min=0, max=ADVANCE_SECONDS_MAX, help="Of virtual time.")
    ],
    step: Annotated[
        float | None,
        typer.Option("--step", metavar="SECONDS", min=0, max=SECONDS_MAX, help="Between pauses for heartbeats."),
    ] = None,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Let time go on, in steps between which clients can send heartbeats, and show the timers that ran."""
    body = {"seconds": seconds} if step is None else {"seconds": seconds, "step": step}
    _show(control_client(control, token_file).post("clock", "advance", body=body)["ran"], is_json=is_json)


@clock.command("run-next", epilog="Example: kohort clock run-next")
def run_next(control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False) -> None:
    """Let time go on to the next deadline, and show the timers that ran."""
    _show(control_client(control, token_file).post("clock", "run-next")["ran"], is_json=is_json)


@clock.command(epilog="Example: kohort clock timers")
def timers(control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False) -> None:
    """List what the broker waits for."""
    _show(control_client(control, token_file).get("clock", "timers")["timers"], is_json=is_json)


def _show(rows: list[dict[str, Any]], *, is_json: bool) -> None:
    print_rows(("seconds", "owner"), rows, is_json=is_json)


@snapshot.command(epilog="Example: kohort snapshot take")
def take(
    scope: Scope = None, control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False
) -> None:
    """Take a snapshot of all topics, groups and transactions."""
    view = control_client(control, token_file).post("snapshots", body={"scope": scope or ""})
    print_changes("Snapshot {id} has {partitions} partitions", [view], is_json=is_json)


@snapshot.command("list", epilog="Example: kohort snapshot list")
def list_snapshots(control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False) -> None:
    """List the snapshots."""
    views = control_client(control, token_file).get("snapshots")["snapshots"]
    print_rows(("id", "scope", "partitions", "size_bytes"), views, is_json=is_json)


@snapshot.command(epilog="Example: kohort snapshot restore snapshot-1-aa5d75")
def restore(name: SnapshotId, control: Address = PORT_DEFAULT, token_file: TokenFile = None) -> None:
    """Go back to a snapshot. Connections are cut, and leader epochs rise."""
    control_client(control, token_file).post("snapshots", name, "restore")
    echo(f"The broker goes on with snapshot {name}")


@snapshot.command(epilog="Example: kohort snapshot remove snapshot-1-aa5d75")
def remove(name: SnapshotId, control: Address = PORT_DEFAULT, token_file: TokenFile = None) -> None:
    """Forget a snapshot. One that is not there is no error."""
    control_client(control, token_file).delete("snapshots", name)


def reset(control: Address = PORT_DEFAULT, token_file: TokenFile = None, is_json: AsJson = False) -> None:
    """Begin with a clean broker in memory, at the same address: no topics, groups, faults or holds."""
    restored = control_client(control, token_file).post("reset")
    if is_json:
        print_json([restored])
    else:
        echo("The broker is clean")
