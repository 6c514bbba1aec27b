"""Every record of logs of Apache Kafka 4.2.1 and 4.4.0 is read as Kafka's own classes read it."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.pipeline.decode import coordinator_records, schemas
from kohort.pipeline.decode.batches import scan
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.records import parse, windows
from kohort.pipeline.decode.segments import list_segments
from kohort.records.schema import record_types
from tests.pipeline.logbytes import decode_directory
from tests.records import kafka_logs

RUNS = ("main", "expiry", "legacy", "tv1", "unclean", "unclean-torn", *kafka_logs.RUNS)
Row = dict[str, Any]


def rows_of(logs: Path, **options: Any) -> list[Row]:
    rows: list[Row] = decode_directory(list_segments(logs), Decoder(kinds=schemas.KINDS, **options)).to_pylist()
    return rows


def expected_batches(run: Path, partition: str) -> list[Row]:
    """Whole batches; a line about a damaged end has no records."""
    lines = (run / "records" / f"{partition}.jsonl").read_text().splitlines()
    return [batch for batch in map(json.loads, lines) if "records" in batch]


def expected_rows(run: Path) -> Iterator[Row]:
    for path in sorted((run / "records").glob("__*.jsonl")):
        topic, _, partition = path.stem.rpartition("-")
        for batch in expected_batches(run, path.stem):
            for record in batch["records"]:
                yield {"log_partition": int(partition), **expected_row(topic, batch, record)}


def expected_row(topic: str, batch: Row, record: Row) -> Row:
    place = {
        "log_topic": topic,
        "log_offset": record["offset"],
        "timestamp_ms": record["timestamp"],
        "producer_id": batch["producer_id"],
        "producer_epoch": batch["producer_epoch"],
        "transactional": batch["transactional"],
    }
    if batch["control"]:
        control, epoch = record["control_type"], record["coordinator_epoch"]
        return {"kind": "marker", **place, "control": control, "coordinator_epoch": epoch}
    decoded = record.get("decoded") or {}
    value = decoded.get("value")
    if topic == "__consumer_offsets" and decoded["key_type"] in (0, 1):
        return {"kind": "offset_commit", **place, **decoded["key"], **expected_commit(decoded, value)}
    if topic == "__consumer_offsets" and decoded["key_type"] == 2:
        return {"kind": "group_metadata", **place, **decoded["key"], **expected_group(decoded, value)}
    if "error" in decoded:
        assert "UnknownRecordTypeException" in decoded["error"]
        raw = [None if record[name] is None else bytes.fromhex(record[name]) for name in ("key", "value")]
        unknown = {"key_type": decoded["key_type"], "tombstone": raw[1] is None, "raw_key": raw[0], "raw_value": raw[1]}
        return {"kind": "coordinator", **place, **unknown}
    kind = "transaction" if topic == "__transaction_state" else "coordinator"
    return {"kind": kind, **place, **expected_other(decoded, value)}


def expected_other(decoded: Row, value: Row | None) -> Row:
    """Any other record: key and value in Kafka's JSON form, and fields of the key in columns."""
    key = decoded["key"]
    return {
        "record_type": decoded["key_name"].removesuffix("Key"),
        "key_type": decoded["key_type"],
        "key": key,
        "value": value,
        "value_version": decoded.get("value_version") if value is not None else None,
        "tombstone": value is None,
        "group": key.get("groupId"),
        "member_id": key.get("memberId"),
        "topic_id": key.get("topicId"),
        "partition": key.get("partition"),
        "transactional_id": key.get("transactionalId"),
    }


def expected_commit(decoded: Row, value: Row | None) -> Row:
    if value is None:
        return {"tombstone": True}
    return {
        "tombstone": False,
        "value_version": decoded["value_version"],
        "offset": value["offset"],
        "leader_epoch": value.get("leaderEpoch", -1),
        "metadata": value["metadata"],
        "commit_timestamp_ms": value["commitTimestamp"],
        "expire_timestamp_ms": value.get("expireTimestamp"),
        "topic_id": value.get("topicId"),
    }


def expected_group(decoded: Row, value: Row | None) -> Row:
    if value is None:
        return {"tombstone": True}
    return {
        "tombstone": False,
        "value_version": decoded["value_version"],
        "protocol_type": value["protocolType"],
        "generation": value["generation"],
        "protocol": value["protocol"],
        "leader": value["leader"],
        "state_timestamp_ms": value.get("currentStateTimestamp"),
        "members": [
            {
                "member_id": member["memberId"],
                "instance_id": member.get("groupInstanceId"),
                "client_id": member["clientId"],
                "client_host": member["clientHost"],
                "rebalance_timeout_ms": member.get("rebalanceTimeout"),
                "session_timeout_ms": member["sessionTimeout"],
                "subscription": base64.b64decode(member["subscription"]),
                "assignment": base64.b64decode(member["assignment"]),
                "assigned": None,
            }
            for member in value["members"]
        ],
    }


def in_log_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["log_topic"], row["log_partition"], row["log_offset"]))


def comparable(row: Row) -> Row:
    """Rows with parsed JSON, without the columns of transactions, which another test covers."""
    # Kafka does not read assignments.
    members = row["members"] and [{**member, "assigned": None} for member in row["members"]]
    texts = {name: row[name] and json.loads(row[name]) for name in ("key", "value")}
    return {**row, **texts, "segment": None, "transaction": None, "members": members}


WINDOWS = [(run, size) for run in RUNS for size in (1, 700, 8 << 20) if size == 700 or run not in kafka_logs.RUNS]


@pytest.mark.parametrize(("run", "window_bytes"), WINDOWS)
def test_every_record_is_read_as_kafka_reads_it(recorded: Callable[[str], Path], run: str, window_bytes: int) -> None:
    rows = rows_of(recorded(run) / "logs", window_bytes=window_bytes)
    nothing = dict.fromkeys(schemas.SCHEMA.names)
    expected = [{**nothing, "segment": None, **row} for row in expected_rows(recorded(run))]
    got = [comparable(row) for row in rows if row["kind"] in schemas.RECORD_KINDS]
    assert expected
    assert in_log_order(got) == in_log_order(expected)


RECORD_TYPES = {
    "ConsumerGroupMetadata", "ConsumerGroupPartitionMetadata", "ConsumerGroupMemberMetadata",
    "ConsumerGroupTargetAssignmentMetadata", "ConsumerGroupTargetAssignmentMember",
    "ConsumerGroupCurrentMemberAssignment", "ConsumerGroupRegularExpression", "ShareGroupMemberMetadata",
    "ShareGroupMetadata", "ShareGroupTargetAssignmentMetadata", "ShareGroupTargetAssignmentMember",
    "ShareGroupCurrentMemberAssignment", "ShareGroupStatePartitionMetadata", "StreamsGroupMetadata",
    "StreamsGroupMemberMetadata", "StreamsGroupTargetAssignmentMetadata", "StreamsGroupTargetAssignmentMember",
    "StreamsGroupCurrentMemberAssignment", "StreamsGroupTopology", "ShareSnapshot", "ShareUpdate", "TransactionLog",
}  # fmt: skip


def test_the_recorded_logs_hold_every_record_type(recorded: Callable[[str], Path]) -> None:
    rows = [row for run in ("main", "legacy") for row in rows_of(recorded(run) / "logs")]
    assert {row["record_type"] for row in rows} - {None} == RECORD_TYPES
    # Committed offsets and classic groups have rows of their own kinds.
    own = {"LegacyOffsetCommit", "OffsetCommit", "GroupMetadata"}
    assert {one.name for one in record_types().values()} == RECORD_TYPES | own


@pytest.mark.parametrize("run", RUNS)
def test_transactions_in_columns_say_what_their_json_says(recorded: Callable[[str], Path], run: str) -> None:
    for row in rows_of(recorded(run) / "logs"):
        if row["kind"] != "transaction" or row["tombstone"]:
            continue
        value, transaction = json.loads(row["value"]), row["transaction"]
        assert transaction["state"] == coordinator_records.STATES[value["transactionStatus"]]
        assert (transaction["producer_id"], transaction["producer_epoch"]) == (
            value["producerId"],
            value["producerEpoch"],
        )
        assert (transaction["timeout_ms"], transaction["last_update_ms"], transaction["start_ms"]) == (
            value["transactionTimeoutMs"],
            value["transactionLastUpdateTimestampMs"],
            value["transactionStartTimestampMs"],
        )
        ids = tuple(value.get(name, -1) for name in ("previousProducerId", "nextProducerId"))
        assert (transaction["previous_producer_id"], transaction["next_producer_id"]) == ids
        assert transaction["client_transaction_version"] == value.get("clientTransactionVersion", 0)
        listed = [
            {"topic": one["topic"], "partition": partition}
            for one in value["transactionPartitions"] or ()
            for partition in one["partitionIds"]
        ]
        assert transaction["partitions"] == listed


@pytest.mark.parametrize("run", RUNS)
def test_every_log_ends_where_kafka_says(recorded: Callable[[str], Path], run: str) -> None:
    ends: dict[str, int] = {}
    for row in rows_of(recorded(run) / "logs"):
        if row["kind"] == "segment":
            ends[f"{row['log_topic']}-{row['log_partition']}"] = row["next_offset"]
    summary = json.loads((recorded(run) / "summary.json").read_text())["partitions"]
    assert {name: end for name, end in ends.items() if summary[name]["next_offset"] is not None} == {
        name: partition["next_offset"] for name, partition in summary.items() if partition["next_offset"] is not None
    }


@pytest.mark.parametrize("run", RUNS)
def test_batches_are_those_that_kafka_lists(recorded: Callable[[str], Path], run: str) -> None:
    rows = rows_of(recorded(run) / "logs")
    for partition in range(4):
        got = [
            (row["segment"], row["position"], row["size_bytes"], row["log_offset"], row["next_offset"] - 1)
            for row in rows
            if (row["kind"], row["log_topic"], row["log_partition"]) == ("batch", "__consumer_offsets", partition)
        ]
        expected = [
            (batch["segment"], batch["position"], batch["size"], batch["base_offset"], batch["last_offset"])
            for batch in expected_batches(recorded(run), f"__consumer_offsets-{partition}")
        ]
        assert got == expected


@pytest.mark.parametrize("run", RUNS)
def test_batches_say_when_they_begin_and_what_they_end(recorded: Callable[[str], Path], run: str) -> None:
    """As Kafka reads their records, those that compaction has given a delete horizon included."""
    names = ("first_timestamp_ms", "record_count", "control")
    listed = {path.stem for path in (recorded(run) / "records").glob("*.jsonl")}
    got = {
        (place, row["segment"], row["position"]): tuple(row[name] for name in names)
        for row in rows_of(recorded(run) / "logs")
        if row["kind"] == "batch" and (place := f"{row['log_topic']}-{row['log_partition']}") in listed
    }
    expected = {
        (path.stem, batch["segment"], batch["position"]): (
            records[0]["timestamp"] if records else None,
            len(records),
            records[0]["control_type"] if batch["control"] and records else None,
        )
        for path in (recorded(run) / "records").glob("*.jsonl")
        for batch in expected_batches(recorded(run), path.stem)
        for records in [batch["records"]]
    }
    assert len(expected) > 10
    assert got == expected


DAMAGE = {
    ("__consumer_offsets", 2): (8838, 193, "incomplete batch"),
    ("u-data", 0): (None, None, "incomplete batch"),
    ("u-data", 1): (None, None, "CRC does not match"),
    ("u-txn", 0): (None, 100, "zero bytes"),
}


def test_the_damage_is_reported(recorded: Callable[[str], Path]) -> None:
    rows = [row for row in rows_of(recorded("unclean-torn") / "logs") if row["kind"] == "damage"]
    got = {(row["log_topic"], row["log_partition"]): row for row in rows}
    assert set(got) == set(DAMAGE)
    for place, (position, size_bytes, problem) in DAMAGE.items():
        assert got[place]["problem"] == problem
        assert position in (None, got[place]["position"])
        assert size_bytes in (None, got[place]["size_bytes"])


def test_undamaged_logs_report_none(recorded: Callable[[str], Path]) -> None:
    for run in set(RUNS) - {"unclean-torn"}:
        assert [row for row in rows_of(recorded(run) / "logs") if row["kind"] == "damage"] == []


@pytest.mark.parametrize("topic", ["d-none", "d-gzip", "d-snappy", "d-lz4", "d-zstd", "d-logappend"])
def test_every_compression_lays_out_the_same_records(recorded: Callable[[str], Path], topic: str) -> None:
    (segment,) = list_segments(recorded("main") / "logs", topics={topic})
    got = []
    for window in windows(scan(Path(segment.path).read_bytes())):
        found = parse(window)
        data = window.data.tobytes()
        for row in range(len(found)):
            key, value = (
                None if size < 0 else data[at : at + size].hex()
                for at, size in (
                    (found.key_at[row], found.key_bytes[row]),
                    (found.value_at[row], found.value_bytes[row]),
                )
            )
            got.append((int(found.offset[row]), int(found.timestamp_ms[row]), key, value))
    expected = [
        (record["offset"], record["timestamp"], record["key"], record["value"])
        for batch in expected_batches(recorded("main"), f"{topic}-0")
        for record in batch["records"]
    ]
    assert len(expected) == 30 or topic == "d-logappend"
    assert got == expected
