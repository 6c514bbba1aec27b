"""
The commands of `kohort brokers`.

`list`, `move-leader` and `move-coordinator` use APIs of Kafka and work with Apache Kafka. `stop` and `start` go to the control
socket of `kohort serve --brokers N`.
"""

from pathlib import Path
from typing import Annotated

import typer

from kohort.cli.brokers import leaders
from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.completion import complete_groups, complete_topics
from kohort.cli.options import AsJson
from kohort.cli.output import print_changes, print_rows
from kohort.client.cluster import CoordinatorKind
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.server.control import control_path, send_command

app = ClusterApp(
    "brokers",
    help="List brokers, move leaders and coordinators, and stop and start virtual brokers, to test the fail-over of clients.",
    epilog="Example: kohort serve --memory --brokers 3, then: kohort brokers stop 2",
)

BrokerId = Annotated[int, typer.Argument(metavar="BROKER", help="Broker id.")]
ControlSocket = Annotated[
    Path | None,
    typer.Option(
        "--control",
        metavar="SOCKET",
        envvar="KOHORT_CONTROL",
        help="Control socket, as the ready line of `kohort serve` names it. Without it, a running broker is asked for the "
        "cluster.",
    ),
]
_MOVED = "{topic}-{partition} is led by broker {leader} in epoch {leader_epoch}"


@app.command("list", epilog="Example: kohort brokers list --json")
def list_brokers(is_json: AsJson = False) -> None:
    """List all brokers with their addresses, and how many partitions each leads."""
    with open_client() as client:
        rows = leaders.brokers(client)
    print_rows(("broker", "state", "host", "port", "rack", "leads", "replicas", "in_sync"), rows, is_json=is_json)


@app.command(epilog="Example: kohort brokers stop 2")
def stop(broker: BrokerId, control: ControlSocket = None, is_json: AsJson = False) -> None:
    """
    Stop a virtual broker.

    Its leaders and coordinators move to other in-sync replicas, then its listeners and connections close.
    """
    _command("stop", broker, control)
    print_changes("Broker {broker} is {state}", [{"broker": broker, "state": "stopped"}], is_json=is_json)


@app.command(epilog="Example: kohort brokers start 2")
def start(broker: BrokerId, control: ControlSocket = None, is_json: AsJson = False) -> None:
    """
    Start a virtual broker that was stopped.

    It joins the in-sync replicas of its partitions; leaders stay where they are.
    """
    _command("start", broker, control)
    print_changes("Broker {broker} is {state}", [{"broker": broker, "state": "running"}], is_json=is_json)


@app.command("move-leader", epilog="Example: kohort brokers move-leader orders 0 2")
def move_leader(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topics, help="Topic name.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", help="Partition index.")],
    broker: BrokerId,
    is_json: AsJson = False,
) -> None:
    """Make a broker the preferred and the present leader of a partition. It must be one of the in-sync replicas."""
    with open_client() as client:
        row = leaders.move(client, TopicPartition(topic, partition), broker)
    print_changes(_MOVED, [row], is_json=is_json)


@app.command("move-coordinator", epilog="Example: kohort brokers move-coordinator --group billing 2")
def move_coordinator(
    broker: BrokerId,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", autocompletion=complete_groups, help="Group id.")
    ] = None,
    transactional_id: Annotated[
        str | None, typer.Option("--transactional-id", metavar="ID", help="Transactional id.")
    ] = None,
    is_json: AsJson = False,
) -> None:
    """
    Make a broker the coordinator of a group or of a transactional id.

    The partition of the internal topic moves, with all its groups or ids.
    """
    if (group is None) == (transactional_id is None):
        raise ConfigError("give one of --group GROUP and --transactional-id ID")
    kind = CoordinatorKind.GROUP if group is not None else CoordinatorKind.TRANSACTION
    key = group if group is not None else transactional_id
    with open_client() as client:
        row = leaders.move(client, leaders.coordinator_place(client, str(key), kind), broker)
    print_changes(_MOVED, [row], is_json=is_json)


def _command(name: str, broker: int, control: Path | None) -> None:
    with open_client() as client:
        path = control_path(leaders.cluster_id(client)) if control is None else control
        send_command(path, name, broker, client.timeout_s)
