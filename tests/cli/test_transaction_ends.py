"""`kohort transactions abort`, `force-terminate` and `hang` on a cluster of several brokers."""

import time

import pytest

from kohort.cli.main import EXIT_ERROR, run
from kohort.cli.transactions.ending import force_terminate
from kohort.cli.transactions.queries import describe_transaction
from kohort.client.cluster import Client
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import TRANSACTIONAL
from kohort.wire.batches import read_header
from tests.cli.transaction_cluster import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    SERVED,
    Command,
    Producer,
    Refused,
    Transaction,
    TransactionCluster,
)
from tests.clients.waiting import PATIENCE_S

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
AT_P1 = ("--topic", "orders", "--partition", "1")
BY_PRODUCER = ("--producer-id", "7", "--producer-epoch", "2", "--coordinator-epoch")


@pytest.mark.parametrize(
    ("coordinator_epoch", "words", "sent"),
    [
        (5, ("--start-offset", "3"), 5),
        # Before its first marker the partition has no coordinator epoch. No coordinator's epoch is below 0.
        (-1, ("--start-offset", "3"), 0),
        (5, (*BY_PRODUCER, "4"), 4),
        (5, (*BY_PRODUCER, "-1"), 0),
    ],
    ids=["offset", "offset, no marker yet", "producer", "producer, no marker yet"],
)
def test_the_marker_goes_to_the_leader_with_the_epochs_of_the_partition(
    cluster: TransactionCluster, command: Command, coordinator_epoch: int, words: tuple[str, ...], sent: int
) -> None:
    cluster.producers[P1] = [Producer(6), Producer(7, 2, start_offset=3, coordinator_epoch=coordinator_epoch)]
    (row,) = command("abort", *AT_P1, *words)
    (asked,) = cluster.requests(ApiKey.WRITE_TXN_MARKERS)
    (marker,) = asked.request.markers
    assert asked.broker == 2
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 2, sent)
    assert (marker.transaction_result, marker.transaction_version) == (False, 0)
    assert [(topic.name, tuple(topic.partition_indexes)) for topic in marker.topics] == [("orders", (1,))]
    assert row == {
        "topic": "orders",
        "partition": 1,
        "producer_id": 7,
        "producer_epoch": 2,
        "coordinator_epoch": sent,
        "start_offset": 3,
    }


def test_a_marker_follows_the_leader(cluster: TransactionCluster, command: Command) -> None:
    cluster.producers[P1] = [Producer(7, start_offset=3)]
    cluster.refusals[ApiKey.WRITE_TXN_MARKERS] = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS]
    command("abort", *AT_P1, "--start-offset", "3")
    assert len(cluster.requests(ApiKey.WRITE_TXN_MARKERS)) == 3


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (
            ErrorCode.INVALID_PRODUCER_EPOCH,
            "in orders-1 cannot be aborted: the partition knows a newer epoch of the producer (INVALID_PRODUCER_EPOCH)",
        ),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, "a marker of a newer coordinator epoch"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this needs the right to alter the cluster"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
    ],
    ids=lambda value: value.name if isinstance(value, ErrorCode) else "",
)
def test_a_refused_marker_is_a_sentence(
    cluster: TransactionCluster, refused: Refused, code: ErrorCode, sentence: str
) -> None:
    cluster.producers[P1] = [Producer(7, start_offset=3)]
    cluster.refusals[ApiKey.WRITE_TXN_MARKERS] = [code]
    assert sentence in refused("abort", *AT_P1, "--start-offset", "3")


def test_a_transaction_that_its_coordinator_knows_is_not_aborted(
    cluster: TransactionCluster, command: Command, refused: Refused
) -> None:
    cluster.producers[P1] = [Producer(7, start_offset=3)]
    cluster.transactions["shop"] = Transaction(7, coordinator=2, partitions=[P1])
    for words in (("--start-offset", "3"), (*BY_PRODUCER, "-1")):
        assert refused("abort", *AT_P1, *words) == (
            "the transaction is not hanging: it belongs to transactional id shop, whose state is Ongoing. Abort it everywhere "
            "with: kohort transactions force-terminate shop"
        )
    assert cluster.requests(ApiKey.WRITE_TXN_MARKERS) == []
    command("abort", *AT_P1, "--start-offset", "3", "--force")
    assert len(cluster.requests(ApiKey.WRITE_TXN_MARKERS)) == 1


def test_a_broker_before_3_0_needs_the_producer_and_force(capsys: pytest.CaptureFixture[str]) -> None:
    younger = ("DESCRIBE_PRODUCERS", "LIST_TRANSACTIONS", "DESCRIBE_TRANSACTIONS")
    served = {api: each for api, each in SERVED.items() if api not in younger} | {"WRITE_TXN_MARKERS": (0, 1)}
    with TransactionCluster(1, served) as older:
        older.add_topic("orders", [1])
        words = ["transactions", "abort", "--topic", "orders", "--partition", "0", "--bootstrap", older.bootstrap]
        assert run([*words, "--start-offset", "3"]) == EXIT_ERROR
        assert "does not support DescribeProducers" in capsys.readouterr().err
        assert run([*words, *BY_PRODUCER, "4", "--force"]) == 0
        (asked,) = older.requests(ApiKey.WRITE_TXN_MARKERS)
    assert asked.version == 1
    assert capsys.readouterr().out == "Aborted the transaction of producer 7 in orders-0.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--start-offset", "4"),
            "orders-1 has no open transaction that starts at offset 4; the open ones start at 3, 9",
        ),
        ((*BY_PRODUCER, "0"), "orders-1 has no open transaction of producer 7; the open ones start at 3, 9"),
        ((), "give either --start-offset, or --producer-id with --producer-epoch and --coordinator-epoch"),
        (("--producer-id", "7"), "give either --start-offset, or --producer-id with --producer-epoch"),
        (("--start-offset", "3", "--producer-id", "7"), "--start-offset names the transaction; leave out"),
    ],
    ids=["another offset", "another producer", "nothing", "half", "both"],
)
def test_a_transaction_that_is_not_there_is_a_sentence(
    cluster: TransactionCluster, refused: Refused, words: tuple[str, ...], sentence: str
) -> None:
    cluster.producers[P1] = [Producer(7), Producer(8, start_offset=3), Producer(9, start_offset=9)]
    assert refused("abort", *AT_P1, *words).startswith(sentence)


def test_nothing_open_and_no_answer_are_sentences(cluster: TransactionCluster, refused: Refused) -> None:
    assert refused("abort", *AT_P1, "--start-offset", "3").endswith("none is open there")
    cluster.refusals[ApiKey.DESCRIBE_PRODUCERS] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert refused("abort", *AT_P1, "--start-offset", "3") == "producers of orders-1: TOPIC_AUTHORIZATION_FAILED"


def test_termination_raises_the_epoch_once(cluster: TransactionCluster, command: Command) -> None:
    cluster.transactions["shop"] = Transaction(7, coordinator=2, partitions=[P0], timeout_ms=4321, start_ms=1)
    assert command("force-terminate", "shop") == [
        {"transactional_id": "shop", "state": "CompleteAbort", "producer_epoch": 1}
    ]
    (asked,) = cluster.requests(ApiKey.INIT_PRODUCER_ID)
    assert asked.broker == 2
    # The coordinator would store another timeout.
    assert (asked.request.transactional_id, asked.request.transaction_timeout_ms) == ("shop", 4321)
    assert (asked.request.producer_id, asked.request.producer_epoch) == (-1, -1)


def test_termination_of_a_transaction_without_timeout_asks_for_one(
    cluster: TransactionCluster, command: Command
) -> None:
    """transaction.max.timeout.ms does not allow the stored timeout of two-phase commit."""
    cluster.transactions["shop"] = Transaction(7, timeout_ms=(1 << 31) - 1, start_ms=1)
    command("force-terminate", "shop")
    (asked,) = cluster.requests(ApiKey.INIT_PRODUCER_ID)
    assert asked.request.transaction_timeout_ms == 60_000


def test_markers_that_are_never_written_are_a_sentence(cluster: TransactionCluster) -> None:
    cluster.transactions["shop"] = Transaction(7, "PrepareAbort", partitions=[P0], start_ms=1)
    with Client(cluster.bootstrap, timeout_s=PATIENCE_S) as client:
        describe_transaction(client, "shop")
        client.timeout_s = 0.2
        with pytest.raises(
            ConfigError, match=r"the markers of shop were not written within 0\.2 s: CONCURRENT_TRANSACTIONS"
        ):
            force_terminate(client, "shop")
    assert cluster.requests(ApiKey.INIT_PRODUCER_ID) == []


def test_what_cannot_be_terminated_is_a_sentence(cluster: TransactionCluster, refused: Refused) -> None:
    # InitProducerId would create an unknown id.
    assert refused("force-terminate", "nope") == "transactional id 'nope' does not exist; see: kohort transactions list"
    cluster.transactions["shop"] = Transaction(7, "CompleteCommit", start_ms=1)
    assert refused("force-terminate", "shop") == (
        "transactional id shop has no open transaction: its state is CompleteCommit"
    )
    cluster.transactions["shop"].state = "Ongoing"
    cluster.refusals[ApiKey.INIT_PRODUCER_ID] = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
    assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in refused("force-terminate", "shop")


def test_a_hanging_transaction_is_one_batch_of_a_new_producer(cluster: TransactionCluster, command: Command) -> None:
    cluster.verification = ("false", DEFAULT_CONFIG)
    now_ms = time.time_ns() // 1_000_000
    (row,) = command("hang", *AT_P1, "--records", "3", "--age", "PT1H")
    assert row == {
        "topic": "orders",
        "partition": 1,
        "start_offset": 10,
        "producer_id": 1001,
        "producer_epoch": 0,
        "transactional_id": None,
        "group": None,
    }
    (asked,) = cluster.requests(ApiKey.PRODUCE)
    # Version 12 would add the partition at the coordinator.
    assert (asked.broker, asked.version, asked.request.acks) == (2, 11, -1)
    header = read_header(asked.request.topic_data[0].partition_data[0].records)
    assert header.attributes & TRANSACTIONAL
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.record_count) == (1001, 0, 0, 3)
    assert 0 <= header.max_timestamp - (now_ms - 3_600_000) < PATIENCE_S * 1000
    assert cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS) == []
    assert [each["producer_id"] for each in command("find-hanging")] == [1001]
    command("abort", *AT_P1, "--start-offset", "10")
    assert command("find-hanging") == []


def test_a_hanging_transaction_of_a_transactional_id(cluster: TransactionCluster, command: Command) -> None:
    cluster.verification = None  # a broker before Kafka 3.6
    cluster.transactions["shop"] = Transaction(7, "Empty", coordinator=2)
    (row,) = command("hang", *AT_P1, "--transactional-id", "shop", "--age", "PT1H")
    assert (row["producer_id"], row["producer_epoch"], row["transactional_id"]) == (7, 1, "shop")
    assert [each.broker for each in cluster.requests(ApiKey.INIT_PRODUCER_ID)] == [2]
    (found,) = command("find-hanging")
    assert (found["transactional_id"], found["state"]) == ("shop", "Empty")


@pytest.mark.parametrize("transactional_id", [None, "shop"])
def test_a_hanging_offset_goes_to_the_coordinator_of_the_group(
    cluster: TransactionCluster, command: Command, transactional_id: str | None
) -> None:
    cluster.add_topic("__consumer_offsets", [2, 1])
    cluster.transactions["shop"] = Transaction(7, "Empty", coordinator=1)
    producer_words = ("--transactional-id", transactional_id) if transactional_id else ()
    (row,) = command(
        "hang",
        "--topic",
        "orders",
        "--partition",
        "0",
        "--group",
        "billing",
        "--switch-verification-off",
        *producer_words,
    )
    (asked,) = cluster.requests(ApiKey.TXN_OFFSET_COMMIT)
    # Version 5 would add the partition at the coordinator of the transaction.
    assert (asked.broker, asked.version) == (2, 4)
    sent = asked.request
    assert (sent.group_id, sent.generation_id_or_member_epoch, sent.member_id) == ("billing", -1, "")
    assert asked.request.transactional_id == (transactional_id or "kohort-hanging")
    (topic,) = asked.request.topics
    assert (topic.name, [(each.partition_index, each.committed_offset) for each in topic.partitions]) == (
        "orders",
        [(0, 0)],
    )
    producer = (7, 1) if transactional_id else (1001, 0)
    assert (row["producer_id"], row["producer_epoch"], row["group"]) == (*producer, "billing")
    assert (row["topic"], row["partition"], row["start_offset"]) == ("__consumer_offsets", 0, 10)
    assert [each.broker for each in cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)] == [2, 2]


def test_a_refused_offset_is_a_sentence(cluster: TransactionCluster, refused: Refused) -> None:
    cluster.verification = None
    cluster.refusals[ApiKey.TXN_OFFSET_COMMIT] = [ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert "the offset of group billing" in refused("hang", *AT_P1, "--group", "billing")
    assert "leave out" in refused("hang", *AT_P1, "--group", "billing", "--records", "1")


@pytest.mark.parametrize("codes", [[], [ErrorCode.RECORD_LIST_TOO_LARGE]], ids=["made", "refused"])
@pytest.mark.parametrize("source", [DEFAULT_CONFIG, DYNAMIC_BROKER_CONFIG], ids=["default", "set before"])
def test_verification_is_switched_back(
    cluster: TransactionCluster, command: Command, refused: Refused, source: int, codes: list[ErrorCode]
) -> None:
    cluster.verification = ("true", source)
    cluster.refusals[ApiKey.PRODUCE] = list(codes)
    words = ("hang", *AT_P1, "--switch-verification-off")
    if codes:
        assert "RECORD_LIST_TOO_LARGE" in refused(*words)
    else:
        command(*words)
    changes = [each.request.resources[0].configs[0] for each in cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)]
    assert [each.broker for each in cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)] == [2, 2]
    back = (0, "true") if source == DYNAMIC_BROKER_CONFIG else (1, None)
    assert [(each.config_operation, each.value) for each in changes] == [(0, "false"), back]
    assert cluster.verification == ("true", source)


def test_a_broker_may_apply_the_change_late(cluster: TransactionCluster, command: Command) -> None:
    cluster.verification = ("true", DEFAULT_CONFIG)
    cluster.refusals[ApiKey.PRODUCE] = [ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE]
    command("hang", *AT_P1, "--switch-verification-off")
    assert len(cluster.requests(ApiKey.PRODUCE)) == 3


def test_a_broker_that_verifies_is_a_sentence(cluster: TransactionCluster, refused: Refused) -> None:
    sentence = refused("hang", *AT_P1)
    assert sentence.startswith("broker 2 verifies transactions, so none can be made hanging there.")
    assert cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS) == []
    cluster.refusals[ApiKey.INCREMENTAL_ALTER_CONFIGS] = [ErrorCode.INVALID_REQUEST]
    sentence = refused("hang", *AT_P1, "--switch-verification-off")
    assert "INVALID_REQUEST" in sentence
    assert sentence.endswith("start it with transaction.partition.verification.enable=false instead")
    assert cluster.requests(ApiKey.PRODUCE) == []


@pytest.mark.parametrize("words", [("--age", "soon"), ("--records", "0"), ("--records", "1001")], ids=" ".join)
def test_a_hanging_transaction_has_an_age_and_records(refused: Refused, words: tuple[str, ...]) -> None:
    assert refused("hang", *AT_P1, *words)
