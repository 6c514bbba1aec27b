"""`kohort offsets`: where a group stands."""

from typing import Annotated

import typer

from kohort.cli.cluster import cluster, on_cluster
from kohort.cli.groups.reads import described_group, standing
from kohort.cli.options import AsJson
from kohort.cli.output import print_json, print_table

EPILOG = "Example: kohort offsets billing --json"
COLUMNS = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "end_offset", "lag")


@on_cluster
def offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The id of a group.")],
    is_json: AsJson = False,
) -> None:
    """The committed offsets of a group, with the ends of the logs and the lag."""
    with cluster() as client:
        rows = standing(client, group)
        if not rows:
            described_group(client, group)  # An unknown group has no offsets either; this raises.
    if is_json:
        print_json(rows)
    else:
        print_table(COLUMNS, rows)
