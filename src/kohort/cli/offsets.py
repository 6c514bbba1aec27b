"""`kohort offsets`: where a group stands."""

from typing import Annotated

import typer

from kohort.cli.group_reads import described_group, standing
from kohort.cli.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, TimeoutS
from kohort.cli.output import print_json, print_table
from kohort.client.cluster import Client
from kohort.client.connection import TIMEOUT_S

EPILOG = "Example: kohort offsets billing --json"
COLUMNS = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "end_offset", "lag")


def offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The id of a group.")],
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    is_json: AsJson = False,
    timeout_s: TimeoutS = TIMEOUT_S,
) -> None:
    """The committed offsets of a group, with the ends of the logs and the lag."""
    with Client(bootstrap, timeout_s) as client:
        rows = standing(client, group)
        if not rows:
            described_group(client, group)  # An unknown group has no offsets either; this raises.
    if is_json:
        print_json(rows)
    else:
        print_table(COLUMNS, rows)
