"""The commands `kohort transactions abort`, `force-terminate` and `hang`."""

from typing import Annotated, Any

import typer

from kohort.cli.cluster import open_client
from kohort.cli.completion import complete_transactional_ids
from kohort.cli.groups.reset_targets import duration_ms
from kohort.cli.options import AsJson
from kohort.cli.output import echo, now_ms, print_changes, print_rows
from kohort.cli.transactions.commands import Partition, Topic, abort_command, app
from kohort.cli.transactions.ending import ProducerKey, force_terminate, write_abort_marker
from kohort.cli.transactions.hanging import is_hanging, known_transactions
from kohort.cli.transactions.hanging_producer import commit_hanging, produce_hanging
from kohort.cli.transactions.producers import ProducerState, describe_producers, find_replicas
from kohort.cli.transactions.verification import verification_off
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition

__all__ = ("app",)


@app.command(epilog="Example: kohort transactions abort --topic orders --partition 0 --start-offset 4711")
def abort(
    topic: Topic,
    partition: Partition,
    is_json: AsJson = False,
    start_offset: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="First offset of the transaction.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="ID", min=0, help="Producer id, instead of the offset.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option(metavar="EPOCH", min=0, max=32767, help="Epoch of that producer.")
    ] = None,
    coordinator_epoch: Annotated[
        int | None,
        typer.Option(metavar="EPOCH", min=-1, help="Coordinator epoch of its last marker; -1 if there is none."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Do not check whether the transaction is open, and hanging.")
    ] = False,
) -> None:
    """
    Abort a hanging transaction in one partition.

    Name the transaction by --start-offset (see find-hanging), or by --producer-id, --producer-epoch and --coordinator-epoch. An
    abort marker is written to the partition. There is no confirmation, but a transaction that its coordinator knows is refused:
    use force-terminate for it. Needs the right to alter the cluster.
    """
    place = TopicPartition(topic, partition)
    named = _named_producer(start_offset, producer_id, producer_epoch, coordinator_epoch)
    found: ProducerState | None = None
    with open_client() as client:
        if named is None or not force:
            found = _open_transaction(client, place, start_offset, producer_id)
            if not force:
                _check_hanging(client, place, found.producer_id)
            # Before its first marker a partition has no coordinator epoch; 0 is not above any.
            named = named or ProducerKey(found.producer_id, found.producer_epoch, found.coordinator_epoch or 0)
        write_abort_marker(client, place, named)
    row = {
        **place._asdict(),
        "producer_id": named.producer_id,
        "producer_epoch": named.producer_epoch,
        "coordinator_epoch": named.coordinator_epoch,
        "start_offset": found.start_offset if found else None,
    }
    print_changes("Aborted the transaction of producer {producer_id} in {topic}-{partition}.", [row], is_json=is_json)


@app.command("force-terminate", epilog="Example: kohort transactions force-terminate shop-1")
def force_terminate_(
    name: Annotated[
        str,
        typer.Argument(metavar="TRANSACTIONAL_ID", autocompletion=complete_transactional_ids, help="Transactional id."),
    ],
    is_json: AsJson = False,
) -> None:
    """
    Abort the open transaction of a transactional id.

    Its coordinator writes the abort markers, and the command waits for them. The producer is fenced: its next request fails,
    and it has to start anew. There is no confirmation.
    """
    with open_client() as client:
        after = force_terminate(client, name)
    row = {"transactional_id": name, "state": after.state, "producer_epoch": after.producer_epoch}
    print_changes("Terminated the transaction of {transactional_id}; its state is {state}.", [row], is_json=is_json)


@app.command("hang", epilog="Example: kohort transactions hang --topic orders --partition 0 --switch-verification-off")
def hang_(
    topic: Topic,
    partition: Partition,
    is_json: AsJson = False,
    records: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=1000, help="Records in the transaction.  [default: 1]")
    ] = None,
    age: Annotated[
        str | None,
        typer.Option(
            metavar="ISO8601", help="Age of the records' timestamps: with PT1H, find-hanging finds them at once."
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Instead of records, commit the offset 0 of the partition for this group.",
        ),
    ] = None,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Use the producer of this transactional id, which is fenced. Default: a producer without one.",
        ),
    ] = None,
    switch_verification_off: Annotated[
        bool,
        typer.Option(
            "--switch-verification-off",
            help="If the leader verifies, set transaction.partition.verification.enable=false on it, and back afterwards.",
        ),
    ] = False,
) -> None:
    """
    Make a hanging transaction, for tests.

    Not for production. Use it to test monitoring, and the reaction of consumers. Appends records of a transaction to a
    partition without telling the coordinator. Consumers with isolation.level=read_committed wait at the first of them until you
    run `kohort transactions abort`. With --group the members of this group cannot fetch their offset until then.

    The partition's leader must accept transactional records that no coordinator knows. Brokers before Kafka 3.6 do. Later
    brokers, and Kohort, do with transaction.partition.verification.enable=false. --switch-verification-off sets this for a
    moment, on the leader (or the coordinator of the group) only, and needs the right to alter its configuration. Meanwhile the
    broker verifies no producer.
    """
    place = TopicPartition(topic, partition)
    if group is not None and (records is not None or age is not None):
        raise ConfigError("--group commits an offset; leave out --records and --age")
    timestamp_ms = now_ms() - (duration_ms(age) if age is not None else 0)
    with open_client() as client:
        leader = client.leader(place) if group is None else client.coordinator(group)
        with verification_off(client, leader, may_switch=switch_verification_off):
            if group is None:
                made = produce_hanging(client, place, records or 1, timestamp_ms, transactional_id)
            else:
                made = commit_hanging(client, group, place, transactional_id)
    row = {
        **made.partition._asdict(),
        "start_offset": made.start_offset,
        "producer_id": made.producer_id,
        "producer_epoch": made.producer_epoch,
        "transactional_id": transactional_id,
        "group": group,
    }
    columns = ("topic", "partition", "start_offset", "producer_id", "producer_epoch", "transactional_id")
    print_rows(columns, [row], is_json=is_json, title="Made a hanging transaction")
    if not is_json:
        echo(f"kohort: end it with: {abort_command(row)}", err=True)


def _named_producer(
    start_offset: int | None, producer_id: int | None, producer_epoch: int | None, coordinator_epoch: int | None
) -> ProducerKey | None:
    """
    Return the producer that the options name; None if they name the transaction by its first offset.

    Raises:
        ConfigError: the options name it in both ways, in none, or not completely.
    """
    options = (producer_id, producer_epoch, coordinator_epoch)
    if start_offset is not None and options == (None, None, None):
        return None
    if start_offset is not None:
        raise ConfigError("--start-offset names the transaction; leave out the options of the producer")
    if producer_id is None or producer_epoch is None or coordinator_epoch is None:
        raise ConfigError("give either --start-offset, or --producer-id with --producer-epoch and --coordinator-epoch")
    return ProducerKey(producer_id, producer_epoch, max(0, coordinator_epoch))


def _open_transaction(
    client: Client, place: TopicPartition, start_offset: int | None, producer_id: int | None
) -> ProducerState:
    """
    Find the transaction in the partition's producer state.

    Raises:
        ConfigError: no such transaction is open there, or the leader does not answer.
    """
    described = describe_producers(client, find_replicas(client, [place.topic], place.partition))
    if place in described.failures:
        raise ConfigError(f"producers of {place}: {described.failures[place]}")
    opened = [each for each in described.producers[place] if each.start_offset is not None]
    for each in opened:
        if each.start_offset == start_offset or each.producer_id == producer_id:
            return each
    which = f"that starts at offset {start_offset}" if start_offset is not None else f"of producer {producer_id}"
    starts: Any = ", ".join(str(each.start_offset) for each in opened)
    others = f"the open ones start at {starts}" if opened else "none is open there"
    raise ConfigError(f"{place} has no open transaction {which}; {others}")


def _check_hanging(client: Client, place: TopicPartition, producer_id: int) -> None:
    """
    Raises:
        ConfigError: a coordinator knows the transaction, and ends it.
    """
    known = known_transactions(client, {producer_id}).get(producer_id)
    if known is not None and not is_hanging(place, known):
        raise ConfigError(
            f"the transaction is not hanging: it belongs to transactional id {known.transactional_id}, whose state is "
            f"{known.state}. Abort it everywhere with: kohort transactions force-terminate {known.transactional_id}"
        )
