"""`kohort transactions list`, `describe`, `describe-producers` and `find-hanging` on a cluster of several brokers."""

import time

import pytest

from kohort.cli.main import EXIT_ERROR, run
from kohort.cli.transactions.producers import PARTITIONS_MAX
from kohort.model.errors import ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.apis import ApiKey
from tests.cli.transaction_cluster import SERVED, Command, Producer, Refused, Transaction, TransactionCluster

HOUR_MS = 3_600_000
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def ago_ms(duration_ms: int) -> int:
    return time.time_ns() // 1_000_000 - duration_ms


def test_every_broker_lists_its_transactional_ids(cluster: TransactionCluster, command: Command) -> None:
    cluster.transactions = {"b": Transaction(7, coordinator=1), "a": Transaction(8, "Empty", coordinator=2)}
    assert command("list") == [
        {
            "transactional_id": "a",
            "state": "Empty",
            "producer_id": 8,
            "coordinator": cluster.address(2),
            "coordinator_id": 2,
        },
        {
            "transactional_id": "b",
            "state": "Ongoing",
            "producer_id": 7,
            "coordinator": cluster.address(1),
            "coordinator_id": 1,
        },
    ]


@pytest.mark.parametrize(
    ("words", "states", "producer_ids", "duration_ms", "pattern"),
    [
        ((), (), (), -1, None),
        (("--state", "ongoing", "--state", "COMPLETEABORT"), ("Ongoing", "CompleteAbort"), (), -1, None),
        (("--producer-id", "9", "--producer-id", "7"), (), (7, 9), -1, None),
        # Kafka's filter keeps ids that never began a transaction. Only open transactions have a duration.
        (("--duration-filter", "5"), ("Ongoing", "PrepareCommit", "PrepareAbort"), (), 5, None),
        (("--duration-filter", "0", "--state", "Ongoing"), ("Ongoing",), (), 0, None),
        (("--id-pattern", "shop-.*"), (), (), -1, "shop-.*"),
    ],
    ids=["none", "states", "producers", "duration", "duration and state", "pattern"],
)
def test_filters_of_a_list(
    cluster: TransactionCluster,
    command: Command,
    words: tuple[str, ...],
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_ms: int,
    pattern: str | None,
) -> None:
    command("list", *words)
    first, second = (each.request for each in cluster.requests(ApiKey.LIST_TRANSACTIONS))
    assert first == second
    assert (tuple(first.state_filters), tuple(first.producer_id_filters)) == (states, producer_ids)
    assert (first.duration_filter, first.transactional_id_pattern) == (duration_ms, pattern)


@pytest.mark.parametrize(
    ("words", "newest", "needed"),
    [(("--duration-filter", "5"), 0, "1 to 2"), (("--id-pattern", "x"), 1, "2 to 2")],
    ids=["duration", "pattern"],
)
def test_an_older_broker_has_not_every_filter(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], newest: int, needed: str
) -> None:
    with TransactionCluster(1, {**SERVED, "LIST_TRANSACTIONS": (0, newest)}) as older:
        assert run(["transactions", "list", "--bootstrap", older.bootstrap]) == 0
        assert run(["transactions", "list", *words, "--bootstrap", older.bootstrap]) == EXIT_ERROR
    assert f"supports ListTransactions versions 0 to {newest}; this command needs {needed}" in capsys.readouterr().err


def test_a_list_waits_for_coordinators_that_load(cluster: TransactionCluster, command: Command) -> None:
    cluster.transactions = {"a": Transaction(7, coordinator=1)}
    cluster.refusals[ApiKey.LIST_TRANSACTIONS] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert [each["transactional_id"] for each in command("list")] == ["a"]


def test_refused_lists_are_sentences(cluster: TransactionCluster, refused: Refused) -> None:
    cluster.refusals[ApiKey.LIST_TRANSACTIONS] = [ErrorCode.INVALID_REGULAR_EXPRESSION]
    assert refused("list", "--id-pattern", "[") == "--id-pattern '[' is not a regular expression"
    cluster.refusals[ApiKey.LIST_TRANSACTIONS] = [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]
    assert "CLUSTER_AUTHORIZATION_FAILED" in refused("list")
    assert "they are Empty, Ongoing, PrepareCommit" in refused("list", "--state", "bogus")


def test_a_description_comes_from_the_coordinator_and_the_leaders(
    cluster: TransactionCluster, command: Command
) -> None:
    start_ms = ago_ms(20_000)
    cluster.transactions["shop"] = Transaction(7, coordinator=2, partitions=[P1, P0], start_ms=start_ms)
    cluster.producers[P0] = [Producer(6, start_offset=1), Producer(7, start_offset=3)]
    (described,) = command("describe", "shop")
    assert described["duration_ms"] >= 20_000
    assert described["duration_ms"] + described["timeout_left_ms"] == 60_000
    assert {key: described[key] for key in ("state", "producer_id", "coordinator", "timeout_ms", "start_ms")} == {
        "state": "Ongoing",
        "producer_id": 7,
        "coordinator": cluster.address(2),
        "timeout_ms": 60_000,
        "start_ms": start_ms,
    }
    # In the second partition the transaction has no record, or its marker is written.
    assert described["partitions"] == [
        {"topic": "orders", "partition": 0, "start_offset": 3},
        {"topic": "orders", "partition": 1, "start_offset": None},
    ]


def test_a_topic_of_a_transaction_may_be_deleted(cluster: TransactionCluster, command: Command) -> None:
    gone = TopicPartition("gone", 3)
    cluster.transactions["shop"] = Transaction(7, partitions=[gone, P0], start_ms=1)
    cluster.producers[P0] = [Producer(7, start_offset=3)]
    (described,) = command("describe", "shop")
    assert described["partitions"] == [
        {"topic": "gone", "partition": 3, "start_offset": None},
        {"topic": "orders", "partition": 0, "start_offset": 3},
    ]


@pytest.mark.parametrize(
    ("transaction", "shown"),
    [
        (
            Transaction(7, "Empty"),
            "Transactional id shop: Empty, producer 7, epoch 0, coordinator ADDRESS, timeout 1.0 min",
        ),
        (Transaction(7, "CompleteCommit", start_ms=1), "shop: CompleteCommit, producer 7, epoch 0"),
        (Transaction(7, start_ms=1), "overdue since"),
        (Transaction(7, "PrepareAbort", start_ms=1), "open for"),
        (Transaction(7, timeout_ms=(1 << 31) - 1, start_ms=1), "no timeout (two-phase commit)"),
    ],
    ids=["empty", "complete", "overdue", "prepare", "two-phase commit"],
)
def test_a_description_for_people(
    cluster: TransactionCluster, capsys: pytest.CaptureFixture[str], transaction: Transaction, shown: str
) -> None:
    cluster.transactions["shop"] = transaction
    assert run(["transactions", "describe", "--all", "--bootstrap", cluster.bootstrap]) == 0
    printed = capsys.readouterr().out
    assert shown.replace("ADDRESS", cluster.address(1)) in printed
    assert ("open for" in printed) == (transaction.state in ("Ongoing", "PrepareAbort"))
    assert ("overdue" in printed) == (transaction.state == "Ongoing" and transaction.timeout_ms == 60_000)


def test_a_coordinator_that_moves_is_looked_up_again(cluster: TransactionCluster, command: Command) -> None:
    cluster.transactions["shop"] = Transaction(7, "Empty", coordinator=2)
    cluster.refusals[ApiKey.DESCRIBE_TRANSACTIONS] = [ErrorCode.NOT_COORDINATOR]
    assert command("describe", "shop")[0]["state"] == "Empty"


def test_what_cannot_be_described_is_a_sentence(cluster: TransactionCluster, refused: Refused) -> None:
    assert refused("describe", "nope") == "transactional id 'nope' does not exist; see: kohort transactions list"
    cluster.transactions["shop"] = Transaction(7)
    cluster.refusals[ApiKey.DESCRIBE_TRANSACTIONS] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in refused("describe", "shop")


def test_producers_come_from_the_leaders_or_from_one_broker(cluster: TransactionCluster, command: Command) -> None:
    cluster.producers[P0] = [Producer(8, 2, 1234, start_offset=5), Producer(7, coordinator_epoch=3)]
    cluster.producers[P1] = [Producer(7)]
    rows = command("describe-producers", "--topic", "orders")
    assert [(row["partition"], row["producer_id"]) for row in rows] == [(0, 7), (0, 8), (1, 7)]
    assert rows[1] == {
        "topic": "orders",
        "partition": 0,
        "producer_id": 8,
        "producer_epoch": 2,
        "coordinator_epoch": None,
        "last_sequence": 0,
        "last_timestamp_ms": 1234,
        "start_offset": 5,
    }
    assert [each.broker for each in cluster.requests(ApiKey.DESCRIBE_PRODUCERS)] == [1, 2]
    assert len(command("describe-producers", "--topic", "orders", "--partition", "1", "--broker-id", "1")) == 1
    assert cluster.requests(ApiKey.DESCRIBE_PRODUCERS)[-1].broker == 1


def test_only_replicas_of_the_broker_are_asked(cluster: TransactionCluster, command: Command) -> None:
    cluster.replicas = [1]
    cluster.producers[P0] = [Producer(7, start_offset=3)]
    assert len(command("find-hanging", "--broker-id", "1")) == 1
    assert command("find-hanging", "--broker-id", "2") == []
    assert {each.broker for each in cluster.requests(ApiKey.DESCRIBE_PRODUCERS)} == {1}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--topic", "nope"), "topic 'nope' does not exist; see: kohort topics list"),
        (("--topic", "orders", "--partition", "2"), "topic orders has no partition 2; it has 2"),
        (("--topic", "orders", "--broker-id", "5"), "there is no broker 5; the brokers are 1, 2"),
    ],
    ids=["topic", "partition", "broker"],
)
@pytest.mark.parametrize("verb", ["describe-producers", "find-hanging"])
def test_a_partition_that_does_not_exist_is_a_sentence(
    refused: Refused, verb: str, words: tuple[str, ...], sentence: str
) -> None:
    assert refused(verb, *words) == sentence


# Kafka TransactionsCommand.filterHangingTransactions and collectCandidateOpenTransactions.
# fmt: off
_OPEN = Producer(7, start_offset=3)
HANGING: dict[str, tuple[Producer, Transaction | None, bool]] = {
    # case                                    producer in orders-0   its transactional id                    does it hang
    "no coordinator knows the producer":      (_OPEN,       None,                                            True),
    "its transaction is in other partitions": (_OPEN,       Transaction(7, partitions=[P1]),                 True),
    "its transaction has ended":              (_OPEN,       Transaction(7, "CompleteAbort"),                 True),
    "its transaction is ongoing here":        (_OPEN,       Transaction(7, partitions=[P0]),                 False),
    "the marker is still to be written":      (_OPEN,       Transaction(7, "PrepareAbort", partitions=[P0]), False),
    "another coordinator has it":             (_OPEN,       Transaction(7, coordinator=2, partitions=[P0]),  False),
    "no transaction is open":                 (Producer(7), None,                                            False),
}
# fmt: on


@pytest.mark.parametrize(("producer", "transaction", "hanging"), HANGING.values(), ids=HANGING)
def test_which_open_transactions_hang(
    cluster: TransactionCluster, command: Command, producer: Producer, transaction: Transaction | None, hanging: bool
) -> None:
    cluster.producers[P0] = [producer]
    if transaction is not None:
        cluster.transactions["shop"] = transaction
    found = command("find-hanging")
    assert [(row["topic"], row["partition"], row["producer_id"]) for row in found] == [("orders", 0, 7)] * hanging
    for row in found:
        assert (row["start_offset"], row["blocked_records"]) == (3, 7)
        known = ("shop", transaction.state) if transaction is not None else (None, None)
        assert (row["transactional_id"], row["state"]) == known


@pytest.mark.parametrize(
    ("words", "found"),
    [((), [8]), (("--max-transaction-timeout", "0"), [7, 8]), (("--max-transaction-timeout", "61"), [])],
    ids=["15 minutes", "0 minutes", "61 minutes"],
)
def test_a_producer_that_wrote_lately_is_left_out(
    cluster: TransactionCluster, command: Command, words: tuple[str, ...], found: list[int]
) -> None:
    cluster.producers[P0] = [
        Producer(7, last_timestamp=ago_ms(60_000), start_offset=1),
        Producer(8, last_timestamp=ago_ms(HOUR_MS), start_offset=2),
    ]
    assert [row["producer_id"] for row in command("find-hanging", *words)] == found


def test_a_transaction_that_ends_during_the_search_is_left_out(cluster: TransactionCluster, command: Command) -> None:
    cluster.producers[P0] = [Producer(7, start_offset=3), Producer(8, start_offset=4)]
    cluster.ends_after_listing = {7}
    assert [row["producer_id"] for row in command("find-hanging")] == [8]


def test_a_search_asks_leaders_for_some_hundred_partitions_at_a_time(
    cluster: TransactionCluster, command: Command
) -> None:
    cluster.add_topic("large", [1] * (PARTITIONS_MAX + 1))
    assert command("find-hanging", "--topic", "large", "--topic", "orders") == []
    asked = [
        (each.broker, sum(len(topic.partition_indexes) for topic in each.request.topics))
        for each in cluster.requests(ApiKey.DESCRIBE_PRODUCERS)
    ]
    assert asked == [(1, PARTITIONS_MAX), (1, 2), (2, 1)]
    # Without candidates no coordinator is asked.
    assert cluster.requests(ApiKey.LIST_TRANSACTIONS) == []


def test_a_partition_without_a_leader_is_reported_beside_the_others(
    cluster: TransactionCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.leaders[P1] = -1
    cluster.producers[P0] = [Producer(7, start_offset=3)]
    assert run(["transactions", "find-hanging", "--bootstrap", cluster.bootstrap]) == EXIT_ERROR
    printed = capsys.readouterr()
    assert [line.split()[:3] for line in printed.out.splitlines()[1:]] == [["orders", "0", "3"]]
    assert printed.err.splitlines() == [
        "kohort: end the first with: kohort transactions abort --topic orders --partition 0 --start-offset 3",
        "kohort: no answer about orders-1: LEADER_NOT_AVAILABLE",
    ]


def test_an_empty_search_says_how_far_it_went(cluster: TransactionCluster, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["transactions", "find-hanging", "--bootstrap", cluster.bootstrap]) == 0
    assert capsys.readouterr().err == "kohort: no hanging transactions older than 15.0 min in 2 partitions\n"
