"""`kohort groups`: which groups there are, who is in them, and how far behind they are. What changes them: `group_changes`."""

from typing import Annotated, Any

import typer

from kohort.cli.cluster import cluster, on_cluster
from kohort.cli.groups.reads import GroupMember, all_groups, described_group, listed_groups, standing
from kohort.cli.options import AsJson
from kohort.cli.output import print_json, print_table
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

app = typer.Typer(
    name="groups",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, describe and delete consumer groups, and move their offsets.",
    epilog="Example: kohort groups describe billing",
)


@app.command("list", epilog="Example: kohort groups list --state Stable --state Empty")
@on_cluster
def list_groups(
    is_json: AsJson = False,
    state: Annotated[
        list[str] | None, typer.Option(help="Only groups in this state; may be given several times.")
    ] = None,
) -> None:
    """All groups of all brokers, with their type and state."""
    with cluster() as client:
        found = listed_groups(client, state or [])
    rows = [
        {
            "group": group.group_id,
            "type": group.group_type.lower(),
            "protocol_type": group.protocol_type,
            "state": group.group_state,
        }
        for group in found
    ]
    if is_json:
        print_json(rows)
    else:
        print_table(("group", "type", "protocol_type", "state"), rows)


@app.command(epilog="Example: kohort groups describe billing --json")
@on_cluster
def describe(
    names: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.")] = None,
    is_json: AsJson = False,
    with_all: Annotated[bool, typer.Option("--all", help="Every classic and consumer group.")] = False,
) -> None:
    """State, members with what they are assigned, committed offsets, ends of the logs and lag."""
    if bool(names) == with_all:
        raise ConfigError("name the groups to describe, or give --all")
    with cluster() as client:
        described = [_described(client, name) for name in dict.fromkeys(names or all_groups(client))]
    if is_json:
        print_json(described)
        return
    for group in described:
        _print_group(group)


def _described(client: Client, name: str) -> dict[str, Any]:
    group = described_group(client, name)
    owners = {partition: member.member_id for member in group.members for partition in member.assignment or ()}
    offsets = standing(client, name, owners)
    return {
        "group": name,
        "type": group.type,
        "state": group.state,
        "protocol": group.protocol,
        "epoch": group.epoch,
        "coordinator": str(client.coordinator(name)),
        "members": [_member(member) for member in group.members],
        "offsets": [
            {**row, "member_id": owners.get(TopicPartition(row["topic"], row["partition"]))} for row in offsets
        ],
    }


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        **member._asdict(),
        "assignment": None
        if member.assignment is None
        else [{"topic": topic, "partition": partition} for topic, partition in member.assignment],
    }


def _print_group(group: dict[str, Any]) -> None:
    facts = [
        f"{group['type']}",
        group["state"],
        f"members {len(group['members'])}",
        f"coordinator {group['coordinator']}",
    ]
    facts += [f"protocol {group['protocol']}"] if group["protocol"] else []
    print_table(
        ("topic", "partition", "offset", "end_offset", "lag", "leader_epoch", "metadata", "member_id"),
        group["offsets"],
        title=f"Group {group['group']}: {', '.join(facts)}",
    )
    if group["members"]:
        rows = [{**member, "assignment": _assignment_text(member["assignment"])} for member in group["members"]]
        print_table(("member_id", "instance_id", "client_id", "client_host", "subscription", "assignment"), rows)


def _assignment_text(assignment: list[dict[str, Any]] | None) -> str:
    if assignment is None:
        return "not a consumer's"
    return ", ".join(f"{each['topic']}-{each['partition']}" for each in assignment)
