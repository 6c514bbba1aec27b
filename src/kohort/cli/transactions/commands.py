"""The commands `kohort transactions list`, `describe`, `describe-producers` and `find-hanging`. See also `write_commands`."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import typer

from kohort.cli.cluster import ClusterApp, open_client
from kohort.cli.completion import complete_topics, complete_transactional_ids
from kohort.cli.options import AsJson
from kohort.cli.output import echo, now_ms, print_json, print_rows, print_table, raise_all
from kohort.cli.transactions import queries
from kohort.cli.transactions.hanging import HangingTransaction, find_hanging
from kohort.cli.transactions.producers import describe_producers, find_leaders, find_replicas
from kohort.cli.transactions.queries import Filters, Transaction
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.pipeline.report.formatting import duration, instant

app = ClusterApp(
    "transactions",
    help="List and describe transactions, find and end hanging transactions.",
    epilog="Example: kohort transactions find-hanging --topic orders",
)

Topic = Annotated[str, typer.Option("--topic", metavar="TOPIC", autocompletion=complete_topics, help="Topic name.")]
Partition: TypeAlias = Annotated[int, typer.Option("--partition", min=0, metavar="N", help="Partition number.")]
AnyPartition: TypeAlias = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="Only this partition.")
]
BrokerId: TypeAlias = Annotated[
    int | None,
    typer.Option("--broker-id", metavar="ID", help="Ask this broker about its replicas, instead of the leaders."),
]

MINUTE_MS = 60_000
_NAMED_MAX = 10
"""Partitions that an error names."""
MAX_TIMEOUT_MINUTES = 15
"""Source: the default of transaction.max.timeout.ms, and of Kafka's tool."""


@app.command("list", epilog="Example: kohort transactions list --state Ongoing --id-pattern 'shop-.*'")
def list_transactions(
    is_json: AsJson = False,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help=f"Only in this state: {', '.join(queries.STATES)}; repeatable."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(metavar="ID", help="Only of this producer id; repeatable.")
    ] = None,
    duration_filter: Annotated[
        int | None,
        typer.Option(metavar="MS", min=0, help="Only open transactions that began more than MS milliseconds ago."),
    ] = None,
    id_pattern: Annotated[
        str | None,
        typer.Option(
            "--id-pattern",
            "--transactional-id-pattern",
            metavar="REGEX",
            help="Only transactional ids that match as a whole. Needs a broker of Kafka 4.1 or later.",
        ),
    ] = None,
) -> None:
    """
    List transactional ids with their states.

    All coordinators are asked. All filters have to match.
    """
    filters = Filters(queries.parse_states(state or ()), producer_id or (), duration_filter, id_pattern)
    with open_client() as client:
        found = queries.list_transactions(client, filters)
    rows = [{**each._asdict(), "coordinator": str(each.coordinator)} for each in found]
    print_rows(("transactional_id", "state", "producer_id", "coordinator"), rows, is_json=is_json)


@app.command(epilog="Example: kohort transactions describe shop-1")
def describe(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRANSACTIONAL_ID", autocompletion=complete_transactional_ids, help="Transactional ids."
        ),
    ] = None,
    is_json: AsJson = False,
    with_all: Annotated[bool, typer.Option("--all", help="Every transactional id.")] = False,
) -> None:
    """
    Show state, duration and partitions.

    START OFFSET is the first record of the transaction in a partition. It is a dash if the transaction has no record there, or
    if its marker is written already.
    """
    if bool(names) == with_all:
        raise ConfigError("name the transactional ids to describe, or use --all")
    with open_client() as client:
        ids = names or [each.transactional_id for each in queries.list_transactions(client, Filters())]
        described = [_described(client, each) for each in dict.fromkeys(ids)]
    if is_json:
        print_json(described)
        return
    for transaction in described:
        _print_transaction(transaction)


@app.command(
    "describe-producers", epilog="Example: kohort transactions describe-producers --topic orders --partition 0"
)
def describe_producers_(
    topic: Topic,
    is_json: AsJson = False,
    partition: AnyPartition = None,
    broker_id: BrokerId = None,
) -> None:
    """
    Show the producers of partitions.

    A partition remembers each idempotent or transactional producer. START OFFSET is the first record of its open transaction.
    COORDINATOR EPOCH is that of its last marker.
    """
    with open_client() as client:
        described = describe_producers(client, find_replicas(client, [topic], partition, broker_id))
    rows = [
        {**partition._asdict(), **state._asdict()}
        for partition, states in sorted(described.producers.items())
        for state in states
    ]
    if is_json:
        print_json(rows)
    else:
        columns = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "last_sequence")
        print_table((*columns, "last_written_(utc)", "start_offset"), [_with_time(row) for row in rows])
    _raise_failures(described.failures)


@app.command("find-hanging", epilog="Example: kohort transactions find-hanging --topic orders")
def find_hanging_(
    is_json: AsJson = False,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC", help="Only this topic; repeatable. Default: all topics.")
    ] = None,
    partition: AnyPartition = None,
    broker_id: BrokerId = None,
    max_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout",
            metavar="MINUTES",
            min=0,
            help="Leave out transactions whose producer wrote in the last MINUTES: transaction.max.timeout.ms of the cluster.",
        ),
    ] = MAX_TIMEOUT_MINUTES,
) -> None:
    """
    Find hanging transactions.

    A hanging transaction is open in a partition, but its coordinator does not know it, so nothing will end it. Consumers with
    isolation.level=read_committed wait at its START OFFSET for ever, and the log is not compacted beyond. BLOCKED is the number
    of records from there on. TRANSACTIONAL ID is a dash if no coordinator knows the producer.
    """
    if partition is not None and not topic:
        raise ConfigError("--partition needs a --topic")
    with open_client() as client:
        replicas = find_replicas(client, topic or None, partition, broker_id)
        hanging, failures = find_hanging(client, replicas, max_timeout * MINUTE_MS, now_ms())
    rows = [_hanging_row(each) for each in hanging]
    if is_json:
        print_json(rows)
    else:
        _print_hanging(rows)
        note = f"end the first with: {abort_command(rows[0])}" if rows else _none_found(max_timeout, len(replicas))
        echo(f"kohort: {note}", err=True)
    _raise_failures(failures)


def _described(client: Client, transactional_id: str) -> dict[str, Any]:
    transaction = queries.describe_transaction(client, transactional_id)
    now = now_ms()
    begun = _start_offsets(client, transaction)
    return {
        "transactional_id": transactional_id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "coordinator": str(transaction.coordinator),
        "timeout_ms": transaction.timeout_ms,
        "start_ms": transaction.start_ms if transaction.is_open else None,
        "duration_ms": now - transaction.start_ms if transaction.is_open and transaction.start_ms is not None else None,
        "timeout_left_ms": transaction.timeout_left_ms(now),
        "partitions": [{**each._asdict(), "start_offset": begun.get(each)} for each in transaction.partitions],
    }


def _start_offsets(client: Client, transaction: Transaction) -> dict[TopicPartition, int | None]:
    """Return the first offset of a transaction in each of its partitions. Partitions without an answer are left out."""
    replicas = find_leaders(client, transaction.partitions)
    return {
        partition: state.start_offset
        for partition, states in describe_producers(client, replicas).producers.items()
        for state in states
        if state.producer_id == transaction.producer_id
    }


def _print_transaction(transaction: Mapping[str, Any]) -> None:
    attributes = [
        transaction["state"],
        f"producer {transaction['producer_id']}",
        f"epoch {transaction['producer_epoch']}",
        f"coordinator {transaction['coordinator']}",
        _timeout_text(transaction["timeout_ms"]),
    ]
    lines = [f"Transactional id {transaction['transactional_id']}: {', '.join(attributes)}"]
    if transaction["duration_ms"] is not None:
        lines.append(
            f"Begun {instant(transaction['start_ms'])} UTC, open for {duration(max(0, transaction['duration_ms']))}"
            f"{_left_text(transaction['timeout_left_ms'])}"
        )
    if transaction["partitions"]:
        print_table(("topic", "partition", "start_offset"), transaction["partitions"], title="\n".join(lines))
    else:
        echo("\n".join(lines))


def _timeout_text(timeout_ms: int) -> str:
    return "no timeout (two-phase commit)" if timeout_ms == queries.NO_TIMEOUT_MS else f"timeout {duration(timeout_ms)}"


def _left_text(timeout_left_ms: int | None) -> str:
    if timeout_left_ms is None:
        return ""
    if timeout_left_ms < 0:
        return f", overdue since {duration(-timeout_left_ms)}: the coordinator aborts it at its next check"
    return f", aborted by its coordinator in {duration(timeout_left_ms)} unless it ends before"


def _hanging_row(each: HangingTransaction) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        **each.producer._asdict(),
        "duration_ms": now_ms() - each.producer.last_timestamp_ms,
        "transactional_id": each.known.transactional_id if each.known else None,
        "state": each.known.state if each.known else None,
        "blocked_records": each.blocked_records,
    }


def _print_hanging(rows: list[dict[str, Any]]) -> None:
    columns = ("topic", "partition", "start_offset", "blocked", "producer_id", "producer_epoch", "transactional_id")
    shown = [
        {**_with_time(row), "blocked": row["blocked_records"], "ago": duration(max(0, row["duration_ms"]))}
        for row in rows
    ]
    print_table((*columns, "last_written_(utc)", "ago"), shown)


def _with_time(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "last_written_(utc)": instant(row["last_timestamp_ms"])}


def abort_command(row: Mapping[str, Any]) -> str:
    """Return the command that ends the transaction of a row."""
    return "kohort transactions abort --topic {topic} --partition {partition} --start-offset {start_offset}".format_map(
        row
    )


def _none_found(max_timeout: int, partitions: int) -> str:
    age = f" older than {duration(max_timeout * MINUTE_MS)}" if max_timeout else ""
    return f"no hanging transactions{age} in {partitions} partition{'' if partitions == 1 else 's'}"


def _raise_failures(failures: Mapping[TopicPartition, str]) -> None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for partition, reason in sorted(failures.items()):
        by_reason[reason].append(str(partition))
    raise_all(f"no answer about {_some(names)}: {reason}" for reason, names in by_reason.items())


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} others" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
