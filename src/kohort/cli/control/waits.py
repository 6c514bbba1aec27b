"""The commands of `kohort wait`, and `kohort requests`."""

from typing import Annotated, Any

import typer

from kohort.cli.completion import complete_groups, complete_topics, complete_transactional_ids
from kohort.cli.control.options import PORT_DEFAULT, SECONDS, Address, Timeout, TokenFile, control_client, fields_of
from kohort.cli.options import AsJson
from kohort.cli.output import print_changes, print_rows

app = typer.Typer(
    name="wait",
    no_args_is_help=True,
    help="Wait until a group, a transaction or a topic of the broker is as it should be (docs/testing.md).",
    epilog="Example: kohort wait group billing --state stable --members 3",
)
_COLUMNS = ("seq", "api", "version", "client_id", "outcome", "errors", "fault")
REQUESTS_EPILOG = "Example: kohort requests api=JoinGroup client_id=worker-1 --wait 2"


@app.command(epilog="Example: kohort wait group billing --state stable --members 3")
def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", autocompletion=complete_groups, help="Group id.")],
    state: Annotated[
        str | None, typer.Option("--state", metavar="STATE", help="stable, empty, exists, absent, and Kafka's others.")
    ] = None,
    members: Annotated[int | None, typer.Option("--members", metavar="N", min=0, help="Number of members.")] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", metavar="TOPIC", autocompletion=complete_topics, help="A topic that is assigned as a whole."
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", metavar="P", min=0, help="A partition of the topic that is assigned.")
    ] = None,
    member: Annotated[
        str | None,
        typer.Option("--member", metavar="MEMBER", help="A member id, instance id or client id with partitions."),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", metavar="N", min=0, help="A committed offset of the topic's partition.")
    ] = None,
    lag: Annotated[int | None, typer.Option("--lag", metavar="N", min=0, help="The largest lag.")] = None,
    timeout: Timeout = SECONDS,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Wait until a group is as all options say."""
    wanted = {"members": members, "topic": topic, "partition": partition, "member": member}
    view = control_client(control, token_file).get(
        "groups", name, wait=state, **wanted, offset=offset, lag=lag, timeout=timeout
    )
    row = view | {"members": len(view["members"])}
    print_changes("Group {group} is {state} with {members} members", [view if is_json else row], is_json=is_json)


@app.command(epilog="Example: kohort wait transaction billing complete_commit")
def transaction(
    name: Annotated[
        str, typer.Argument(metavar="ID", autocompletion=complete_transactional_ids, help="Transactional id.")
    ],
    state: Annotated[
        str, typer.Argument(metavar="STATE", help="ongoing, complete_commit, complete_abort, complete, and others.")
    ],
    timeout: Timeout = SECONDS,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Wait for a state of a transactional id."""
    view = control_client(control, token_file).get("transactions", name, wait=state, timeout=timeout)
    print_changes("Transactional id {transactional_id} is {state}", [view], is_json=is_json)


@app.command(epilog="Example: kohort wait topic orders")
def topic(
    name: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics, help="Topic name.")],
    is_absent: Annotated[bool, typer.Option("--absent", help="Wait until it is gone.")] = False,
    timeout: Timeout = SECONDS,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Wait until a topic exists, with leaders for all partitions."""
    state = "absent" if is_absent else "exists"
    control_client(control, token_file).get("topics", name, wait=state, timeout=timeout)
    sentence = "Topic {topic} is gone" if is_absent else "Topic {topic} is there"
    print_changes(sentence, [{"topic": name, "state": state}], is_json=is_json)


def requests(
    filters: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Filters, as those of faults.")
    ] = None,
    wait: Annotated[int | None, typer.Option("--wait", metavar="N", min=1, help="Wait until so many match.")] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=0, help="How many of the last are shown.")] = 100,
    is_on: Annotated[
        bool | None, typer.Option("--keep/--keep-none", help="Begin or end to keep requests, and show none.")
    ] = None,
    timeout: Timeout = SECONDS,
    control: Address = PORT_DEFAULT,
    token_file: TokenFile = None,
    is_json: AsJson = False,
) -> None:
    """Show the last requests of clients with their answers; the broker keeps them after `kohort requests --keep`."""
    client = control_client(control, token_file)
    if is_on is not None:
        client.send("PUT", ("journal",), body={"is_on": is_on})
        return
    query: dict[str, Any] = fields_of(filters, {}) if filters else {}
    if wait is not None:
        query |= {"wait": wait, "timeout": timeout}
    rows = client.get("requests", limit=limit, **query)["requests"]
    print_rows(_COLUMNS, [{"outcome": "waiting", "errors": [], "fault": None, **row} for row in rows], is_json=is_json)
