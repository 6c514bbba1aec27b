"""`kohort transactions` beside Apache Kafka's tool, on the same broker."""

import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import pytest

from kohort.cli.main import EXIT_ERROR, run
from kohort.cli.transactions.verification import VERIFICATION
from kohort.client import Client, Versions
from kohort.model.errors import ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.conftest import new_topic
from tests.clients.java_tools import JavaTools
from tests.clients.transactions.conftest import IS_KAFKA, SETTINGS, Broker, MakeTopic, make_broker
from tests.clients.transactions.consumers import high_watermark, last_stable_offset
from tests.clients.transactions.producers import PYTHON_CLIENTS, RefusedError, opened
from tests.clients.waiting import PATIENCE_S

KAFKA_TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CLIENT = PYTHON_CLIENTS["librdkafka"]


@pytest.fixture(scope="module")
def unverified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker on which transactions can be made hanging: at once, or in Kafka by switching its verification off."""
    made = make_broker(
        tmp_path_factory.mktemp("unverified"), SETTINGS if IS_KAFKA else {**SETTINGS, VERIFICATION: "false"}
    )
    made.start()
    yield made
    made.stop()


def rows_of(java: JavaTools, bootstrap: str, *words: str) -> list[dict[str, str]]:
    """Run Kafka's tool and return the rows of its table."""
    output = java.run(KAFKA_TRANSACTIONS, "--bootstrap-server", bootstrap, *words)
    heading, *rows = [[cell.strip() for cell in line.split("\t")] for line in output.splitlines()]
    return [dict(zip(heading, row, strict=True)) for row in rows]


def transactions(broker: Broker, *words: str) -> Any:
    """Run a command with --json, in this process, and return the decoded output."""
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as errors:
        code = run(["transactions", *words, "--json", "--bootstrap", broker.bootstrap, "--timeout", str(PATIENCE_S)])
    assert code == 0, errors.getvalue()
    return json.loads(printed.getvalue())


def refusal(broker: Broker, *words: str) -> str:
    """Run a command that ends with exit code 2, in this process, and return its message."""
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as errors:
        code = run(["transactions", *words, "--bootstrap", broker.bootstrap, "--timeout", str(PATIENCE_S)])
    assert (code, printed.getvalue()) == (EXIT_ERROR, "")
    return errors.getvalue()


def stable_offset_code(broker: Broker, group: str, topic: str) -> int:
    """Fetch the offset of a group as a consumer of committed records does, and return the error code of the partition."""
    request = messages.OffsetFetchRequest(
        groups=[
            messages.OffsetFetchRequestGroup(
                group_id=group,
                member_id=None,
                member_epoch=-1,
                topics=[messages.OffsetFetchRequestTopics(name=topic, partition_indexes=(0,))],
            )
        ],
        require_stable=True,
    )
    with Client(broker.bootstrap, timeout_s=PATIENCE_S) as client:
        response = client.send_to_coordinator(
            group,
            ApiKey.OFFSET_FETCH,
            request,
            error_code=lambda found: found.groups[0].error_code,
            within=Versions(8, 9),
        )
    return int(response.groups[0].topics[0].partitions[0].error_code)


def test_list_and_describe_show_the_facts_of_kafkas_tool(
    broker: Broker, java: JavaTools, make_topic: MakeTopic, transactional_id: str
) -> None:
    """Three runs of a Java virtual machine."""
    topic = make_topic(2)
    with opened(CLIENT, broker.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, "a")
        producer.commit()
        producer.begin()
        for partition in (0, 1):
            producer.send(topic, partition, "b")
        (listed,) = transactions(broker, "list", "--id-pattern", transactional_id)
        (described,) = transactions(broker, "describe", transactional_id)
        states = transactions(broker, "describe-producers", "--topic", topic, "--partition", "0")
        (their_listed,) = rows_of(java, broker.bootstrap, "list", "--transactional-id-pattern", transactional_id)
        (theirs,) = rows_of(java, broker.bootstrap, "describe", "--transactional-id", transactional_id)
        their_states = rows_of(java, broker.bootstrap, "describe-producers", "--topic", topic, "--partition", "0")
        producer.abort()
    assert their_listed == {
        "TransactionalId": transactional_id,
        "Coordinator": str(listed["coordinator_id"]),
        "ProducerId": str(listed["producer_id"]),
        "TransactionState": listed["state"],
        "": "",
    }
    partitions = ",".join(sorted(f"{each['topic']}-{each['partition']}" for each in described["partitions"]))
    theirs["TopicPartitions"] = ",".join(sorted(theirs["TopicPartitions"].split(",")))
    assert {key: theirs[key] for key in theirs if key not in ("TransactionDurationMs", "")} == {
        "CoordinatorId": str(listed["coordinator_id"]),
        "TransactionalId": transactional_id,
        "ProducerId": str(described["producer_id"]),
        "ProducerEpoch": str(described["producer_epoch"]),
        "TransactionState": described["state"],
        "TransactionTimeoutMs": str(described["timeout_ms"]),
        "CurrentTransactionStartTimeMs": str(described["start_ms"]),
        "TopicPartitions": partitions,
    }
    assert [(each["partition"], each["start_offset"]) for each in described["partitions"]] == [(0, 2), (1, 0)]
    assert [{key: row[key] for key in row if key} for row in their_states] == [
        {
            "ProducerId": str(each["producer_id"]),
            "ProducerEpoch": str(each["producer_epoch"]),
            "LatestCoordinatorEpoch": str(each["coordinator_epoch"]),
            "LastSequence": str(each["last_sequence"]),
            "LastTimestamp": str(each["last_timestamp_ms"]),
            "CurrentTransactionStartOffset": str(each["start_offset"]),
        }
        for each in states
    ]


def test_filters(broker: Broker, make_topic: MakeTopic, transactional_id: str) -> None:
    topic = make_topic()
    with opened(CLIENT, broker.bootstrap, transactional_id) as producer:
        assert transactions(broker, "list", "--duration-filter", "0", "--id-pattern", transactional_id) == []
        producer.begin()
        producer.send(topic, 0, "a")
        (found,) = transactions(broker, "list", "--id-pattern", transactional_id)
        words = ("--state", "ongoing", "--producer-id", str(found["producer_id"]))
        assert transactions(broker, "list", *words, "--duration-filter", "0") == [found]
        assert transactions(broker, "list", *words, "--duration-filter", "100000000") == []
        assert transactions(broker, "list", *words, "--id-pattern", transactional_id[:-1]) == []
        producer.commit()
        assert transactions(broker, "list", *words) == []
    assert refusal(broker, "list", "--id-pattern", "[") == "kohort: --id-pattern '[' is not a regular expression\n"


def test_termination_fences_the_producer(broker: Broker, make_topic: MakeTopic, transactional_id: str) -> None:
    topic = make_topic()
    with opened(CLIENT, broker.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, "a")
        (before,) = transactions(broker, "describe", transactional_id)
        refused = refusal(broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
        assert f"kohort transactions force-terminate {transactional_id}" in refused
        (after,) = transactions(broker, "force-terminate", transactional_id)
        assert after == {
            "transactional_id": transactional_id,
            "state": "CompleteAbort",
            "producer_epoch": before["producer_epoch"] + 1,
        }
        with pytest.raises(RefusedError):
            producer.commit()
    assert last_stable_offset(broker.bootstrap, topic) == high_watermark(broker.bootstrap, topic)
    (described,) = transactions(broker, "describe", transactional_id)
    assert (described["state"], described["partitions"], described["timeout_left_ms"]) == ("CompleteAbort", [], None)


@pytest.mark.parametrize("is_known", [False, True], ids=["no transactional id", "a transactional id"])
def test_a_hanging_transaction_from_its_beginning_to_its_end(
    unverified: Broker, transactional_id: str, is_known: bool
) -> None:
    topic = new_topic(unverified.bootstrap, 2, {})
    place = ("--topic", topic, "--partition", "1")
    words = ("--records", "3", "--age", "PT1H", *(("--transactional-id", transactional_id) if is_known else ()))
    (made,) = transactions(unverified, "hang", *place, *words, *(("--switch-verification-off",) if IS_KAFKA else ()))
    assert (last_stable_offset(unverified.bootstrap, topic, 1), high_watermark(unverified.bootstrap, topic, 1)) == (
        0,
        3,
    )

    (found,) = transactions(unverified, "find-hanging", "--topic", topic)
    assert (found["partition"], found["producer_id"], found["start_offset"]) == (1, made["producer_id"], 0)
    assert (found["transactional_id"], found["state"]) == ((transactional_id, "Empty") if is_known else (None, None))
    assert found["blocked_records"] == 3

    assert transactions(unverified, "abort", *place, "--start-offset", "0")[0]["producer_id"] == made["producer_id"]
    assert transactions(unverified, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0") == []
    assert last_stable_offset(unverified.bootstrap, topic, 1) == high_watermark(unverified.bootstrap, topic, 1) == 4


def test_a_hanging_offset_blocks_the_group(unverified: Broker, group: str) -> None:
    topic = new_topic(unverified.bootstrap, 1, {})
    words = ("--topic", topic, "--partition", "0", "--group", group)
    (made,) = transactions(unverified, "hang", *words, *(("--switch-verification-off",) if IS_KAFKA else ()))
    assert (made["topic"], made["group"]) == ("__consumer_offsets", group)
    assert stable_offset_code(unverified, group, topic) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    place = ("--topic", made["topic"], "--partition", str(made["partition"]))
    (found,) = transactions(unverified, "find-hanging", *place, "--max-transaction-timeout", "0")
    assert found["producer_id"] == made["producer_id"]
    transactions(unverified, "abort", *place, "--start-offset", str(found["start_offset"]))
    assert stable_offset_code(unverified, group, topic) == ErrorCode.NONE


def test_find_hanging_finds_what_kafkas_tool_finds(unverified: Broker, java: JavaTools, transactional_id: str) -> None:
    """Two hanging transactions and an ongoing one in a partition. Kafka's tool ends one of the former."""
    topic = new_topic(unverified.bootstrap, 1, {})
    words = ("hang", "--topic", topic, "--partition", "0", *(("--switch-verification-off",) if IS_KAFKA else ()))
    with opened(CLIENT, unverified.bootstrap, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, "a")
        for age in ("PT1H", "P1D"):
            transactions(unverified, *words, "--age", age)
        ours = transactions(unverified, "find-hanging", "--topic", topic)
        theirs = rows_of(java, unverified.bootstrap, "find-hanging", "--topic", topic)
        assert [row["start_offset"] for row in ours] == [1, 2]
        assert [
            {
                "Topic": row["topic"],
                "Partition": str(row["partition"]),
                "ProducerId": str(row["producer_id"]),
                "ProducerEpoch": str(row["producer_epoch"]),
                "CoordinatorEpoch": "-1",
                "StartOffset": str(row["start_offset"]),
                "LastTimestamp": str(row["last_timestamp_ms"]),
            }
            for row in ours
        ] == sorted(
            ({key: row[key] for key in row if key and "Duration" not in key} for row in theirs),
            key=lambda row: row["StartOffset"],
        )
        for row in ours[:1]:
            offset = str(row["start_offset"])
            java.run(
                KAFKA_TRANSACTIONS,
                *("--bootstrap-server", unverified.bootstrap),
                *("abort", "--topic", topic, "--partition", "0", "--start-offset", offset),
            )
        assert [row["start_offset"] for row in transactions(unverified, "find-hanging", "--topic", topic)] == [2]
        producer.commit()


def test_a_broker_that_verifies_refuses_to_let_a_transaction_hang(broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic()
    refused = refusal(broker, "hang", "--topic", topic, "--partition", "0")
    assert refused.startswith("kohort: broker 1 verifies transactions")
    assert high_watermark(broker.bootstrap, topic) == 0
