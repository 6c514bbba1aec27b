"""
The commands of `kohort cluster`.

`status`, `drain` and `forget` read and write the rows of the nodes in the database, and need no node that answers. `move` uses
APIs of Kafka.
"""

from typing import Annotated

import typer

from kohort.cli.cluster import open_client, with_cluster_options
from kohort.cli.completion import complete_topics
from kohort.cli.options import SECONDS_MAX, AsJson
from kohort.cli.output import echo, print_changes, print_rows
from kohort.cli.store import Url, connected

app = typer.Typer(
    name="cluster",
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Nodes that share a store: who lives and leads, and moves of partitions.",
)

_PROBLEMS_FOUND = 1
_COLUMNS = ("node", "state", "controller", "leads", "epoch", "lease_age_ms", "behind", "version", "rack", "address")

Node = Annotated[int, typer.Argument(metavar="NODE", min=0, help="Id of a node, as `--set node.id` gave it.")]


@app.command(epilog="Example: kohort cluster status postgresql://db.example/kohort")
def status(url: Url, is_json: AsJson = False) -> None:
    """
    Show the nodes of a store. Changes nothing, and takes a third of a lease at most.

    \b
    STATE      live; drained: it leads nothing, as an operator wants it; stopping; stopped;
               silent: it does not renew its lease
    LEADS      partitions, as their rows in the database say
    EPOCH      the highest leader epoch of these
    LEASE AGE  time since the last renewal that was seen
    BEHIND     entries of the catalog that the node has not applied

    Exits with 1 if a node is stopped or silent, or if partitions have no leader.
    """
    with connected(url) as (connection, target):
        from kohort.cli.nodes.rows import read_status

        found = read_status(connection, target.shown)
    print_rows(_COLUMNS, found.rows, is_json=is_json, title=found.title)
    for problem in found.problems:
        echo(problem, err=True)
    if found.problems:
        raise typer.Exit(_PROBLEMS_FOUND)


@app.command(epilog="Example: kohort cluster drain postgresql://db.example/kohort 2")
def drain(
    url: Url,
    node: Node,
    is_ended: Annotated[
        bool, typer.Option("--end", help="End a drain: the node is given partitions again, now and after each start.")
    ] = False,
    timeout_s: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.1, max=SECONDS_MAX, help="Longest time to wait for the moves."
        ),
    ] = 60.0,
) -> None:
    """
    Let other nodes lead the partitions of a node, before its machine is taken away.

    It stays a member that clients may ask, and leads nothing, also after a start, until --end. A node that is stopped by
    SIGTERM or Ctrl-C does the same by itself.
    """
    with connected(url) as (connection, target):
        from kohort.cli.nodes.rows import end_drain, wait_until_drained, want_drained

        if is_ended:
            end_drain(connection, target.shown, node)
            echo(f"Node {node} may lead again; the controller gives it partitions")
            return
        want_drained(connection, target.shown, node)
        wait_until_drained(connection, node, timeout_s, lambda left: echo(f"Node {node} leads {left} partitions"))
    echo(f"Node {node} is drained")


@app.command(epilog="Example: kohort cluster forget postgresql://db.example/kohort 3")
def forget(url: Url, node: Node) -> None:
    """
    Remove a stopped node that does not come back from the store, so that `status` does not miss it.

    A node with its id may join again.
    """
    with connected(url) as (connection, target):
        from kohort.cli.nodes.rows import forget_node

        forget_node(connection, target.shown, node)
    echo(f"Node {node} is forgotten")


@app.command(epilog="Example: kohort cluster move orders-0 2   or all partitions: kohort cluster move orders 2")
@with_cluster_options
def move(
    place: Annotated[
        str,
        typer.Argument(metavar="TOPIC[-PARTITION]", autocompletion=complete_topics, help="A partition, or a topic."),
    ],
    node: Node,
    is_json: AsJson = False,
) -> None:
    """
    Let a node lead a partition, or all partitions of a topic.

    A node that has no replica takes the place of the first one: all nodes read one store, and nothing is copied.
    """
    from kohort.cli.nodes.moves import move_to, places

    with open_client() as client:
        for each in places(client, place):
            row = move_to(client, each, node)
            print_changes("{topic}-{partition} is led by node {leader} in epoch {leader_epoch}", [row], is_json=is_json)
