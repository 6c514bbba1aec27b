"""`kohort offsets`: committed offsets and lag of a group."""

from typing import Annotated

import typer

from kohort.cli.cluster import open_client, with_cluster_options
from kohort.cli.completion import complete_groups
from kohort.cli.groups.queries import describe_group, offset_rows, rows_of
from kohort.cli.options import AsJson
from kohort.cli.output import print_rows

EPILOG = "Example: kohort offsets billing --json"
COLUMNS = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "end_offset", "lag")


@with_cluster_options
def offsets(
    group: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="Group id.")],
    is_json: AsJson = False,
) -> None:
    """Show committed offsets and lag of a group, or the start offsets of a share group."""
    with open_client() as client:
        # An unknown group has no offsets, and cannot be described.
        rows = offset_rows(client, group) or rows_of(client, describe_group(client, group))
    print_rows(COLUMNS, rows, is_json=is_json)
