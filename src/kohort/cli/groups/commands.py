"""The commands `kohort groups list` and `describe`. The other commands are in `write_commands`."""

from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.completion import complete_groups
from kohort.cli.groups import queries
from kohort.cli.groups.queries import GroupMember
from kohort.cli.groups.share_groups import SHARE
from kohort.cli.groups.waiting import find_waits
from kohort.cli.options import AsJson
from kohort.cli.output import print_json, print_rows, print_table
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.suggestion import suggestion

app = ClusterApp(
    "groups",
    help="List, describe and delete groups, reset offsets.",
    epilog="Example: kohort groups describe billing",
)


_STATES: Final = (
    *("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"),
    *("Assigning", "Reconciling", "NotReady"),
)
"""Source: Kafka GroupState."""
_TYPES: Final = ("classic", "consumer", "share", "streams")


def _check_names(option: str, given: Sequence[str], known: Sequence[str]) -> None:
    """
    Raises:
        ConfigError: a name is not known; Kafka's tool refuses it, too.
    """
    for name in given:
        if name.lower() not in (each.lower() for each in known):
            near = suggestion(name, known)
            raise ConfigError(f"{option} {name!r} is unknown{near or '; there are ' + ', '.join(known)}")


@app.command("list", epilog="Example: kohort groups list --state Stable --state Empty")
def list_groups(
    is_json: AsJson = False,
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state, for example Stable; repeatable.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", help="Only groups of this type, classic or consumer for example; repeatable."),
    ] = None,
) -> None:
    """List the groups of all brokers with type and state."""
    _check_names("--state", state or (), _STATES)
    _check_names("--type", types or (), _TYPES)
    with open_client() as client:
        found = queries.list_groups(client, state or (), types or ())
    rows = [
        {
            "group": group.group_id,
            "type": group.group_type.lower(),
            "protocol_type": group.protocol_type,
            "state": group.group_state,
        }
        for group in found
    ]
    print_rows(("group", "type", "protocol_type", "state"), rows, is_json=is_json)


@app.command(epilog="Example: kohort groups describe billing --json")
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="Group ids.")
    ] = None,
    is_json: AsJson = False,
    with_all: Annotated[bool, typer.Option("--all", help="Every classic, consumer and share group.")] = False,
) -> None:
    """
    Show members, assignments, offsets and lag.

    Of a consumer group (KIP-848) also epochs, target assignments, and which member waits for which. Of a share group
    (KIP-932) epochs, and start offsets with their lag.
    """
    if bool(names) == with_all:
        raise ConfigError("name the groups to describe, or use --all")
    with open_client() as client:
        described = [_described(client, name) for name in dict.fromkeys(names or queries.group_ids(client))]
    if is_json:
        print_json(described)
        return
    for group in described:
        _print_group(group)


def _described(client: Client, name: str) -> dict[str, Any]:
    group = queries.describe_group(client, name)
    owners: dict[TopicPartition, str] = {}
    for member in group.members:
        for partition in member.assignment or ():
            others = owners.get(partition)  # of a share group
            owners[partition] = member.member_id if others is None else f"{others},{member.member_id}"
    offsets = queries.rows_of(client, group, owners)
    has_waits = group.type != SHARE and group.target_epoch is not None
    waits = find_waits(group.members, group.target_epoch or 0) if has_waits else []
    return {
        "group": name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "coordinator": str(client.coordinator(name)),
        "members": [_member(member) for member in group.members],
        "waits": [
            {
                "member_id": wait.member_id,
                **wait.partition._asdict(),
                "waits_for": list(wait.waits_for),
            }
            for wait in waits
        ],
        "offsets": [
            {**row, "member_id": owners.get(TopicPartition(row["topic"], row["partition"]))} for row in offsets
        ],
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        **member._asdict(),
        "assignment": _partition_rows(member.assignment),
        "target": _partition_rows(member.target),
    }


def _partition_rows(partitions: list[TopicPartition] | None) -> list[dict[str, Any]] | None:
    if partitions is None:
        return None
    return [each._asdict() for each in partitions]


def _print_group(group: dict[str, Any]) -> None:
    has_epochs, is_share = group["target_epoch"] is not None, group["type"] == SHARE
    attributes = [
        f"{group['type']}",
        group["state"],
        f"members {len(group['members'])}",
        f"coordinator {group['coordinator']}",
    ]
    if has_epochs:
        attributes += [f"epoch {group['epoch']}", f"target epoch {group['target_epoch']}"]
        attributes += [f"assignor {group['protocol']}"] if group["protocol"] else []
    elif group["protocol"]:
        attributes.append(f"protocol {group['protocol']}")
    print_table(
        ("topic", "partition", "offset", "end_offset", "lag", "leader_epoch", "metadata", "member_id"),
        group["offsets"],
        title=f"Group {group['group']}: {', '.join(attributes)}",
    )
    if group["members"]:
        columns: tuple[str, ...] = ("member_id", "instance_id", "client_id", "client_host", "subscription")
        if is_share:
            columns += ("epoch", "assignment")
        else:
            columns += ("protocol", "epoch", "assignment", "target") if has_epochs else ("assignment",)
        rows = [
            {
                **member,
                "assignment": _assignment_text(member["assignment"]),
                "target": _assignment_text(member["target"]),
            }
            for member in group["members"]
        ]
        print_table(columns, rows)
    if group["waits"]:
        print_table(("member_id", "topic", "partition", "waits_for"), [_wait_row(wait) for wait in group["waits"]])


def _wait_row(wait: dict[str, Any]) -> dict[str, Any]:
    return {**wait, "waits_for": ",".join(wait["waits_for"]) or "its own next heartbeat"}


def _assignment_text(assignment: list[dict[str, Any]] | None) -> str:
    if assignment is None:
        return "not a consumer's"
    return ", ".join(f"{each['topic']}-{each['partition']}" for each in assignment)
