"""Generated scenarios of logs: valid and invalid batches, idempotent producers, and reads at any offset."""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

_TIME = 1_700_000_000_000
_PARTITIONS = 2


def write_log_scenario(writer: ScenarioWriter) -> None:
    writer.topics["t"] = _PARTITIONS
    has_producer = writer.chance(0.6)
    if has_producer:
        writer.send(
            "InitProducerId",
            {"keep": {"pid": "producer_id", "epoch": "producer_epoch"}},
            transactional_id={"$none": True},
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
    sequences = [0] * _PARTITIONS
    for _ in range(writer.random.randint(5, 14)):
        kind = writer.random.random()
        if kind < 0.45:
            _produce(writer, has_producer, sequences)
        elif kind < 0.7:
            _fetch(writer)
        elif kind < 0.9:
            _list_offsets(writer)
        else:
            _leader_epoch(writer)


def _produce(writer: ScenarioWriter, has_producer: bool, sequences: list[int]) -> None:
    partition = writer.random.randrange(_PARTITIONS)
    batch = _batch(writer)
    count = len(batch["records"])
    if has_producer and writer.chance(0.7):
        offset = writer.pick((0, 0, 0, 0, -1, 1, -count))
        batch |= {
            "producer_id": "$pid",
            "producer_epoch": writer.pick((0, 0, 0, 0, 1)),
            "sequence": max(0, sequences[partition] + offset),
        }
        if offset == 0 and batch["producer_epoch"] == 0:
            sequences[partition] += count
    acks = writer.pick((-1, -1, 1, 1, 0, 2))
    index = writer.pick((partition, partition, partition, partition, 7))
    keywords: dict[str, Any] = {"on": "acks0", "unanswered": True} if acks == 0 else {}
    writer.send(
        "Produce",
        keywords,
        transactional_id={"$none": True},
        acks=acks,
        timeout_ms=5_000,
        topic_data=[
            {"name": "@t", "topic_id": "$t.id", "partition_data": [{"index": index, "records": {"$batch": batch}}]}
        ],
    )
    if acks in (0, 1):
        writer.pause(120)  # The high watermark rises after the flush, which acks=0 and acks=1 do not await.


def _batch(writer: ScenarioWriter) -> dict[str, Any]:
    records: list[Any] = []
    for number in range(writer.random.randint(1, 4)):
        record: dict[str, Any] = {"value": f"v{number}", "time": _TIME + writer.random.randint(0, 50)}
        if writer.chance(0.4):
            record["key"] = f"k{number}"
        if writer.chance(0.2):
            record["headers"] = {"h": "x"}
        records.append(record)
    batch: dict[str, Any] = {"records": records, "time": _TIME, "codec": writer.pick(("none", "none", "gzip", "lz4"))}
    spoiled = writer.pick((None,) * 12 + ("damage", "base_offset", "control", "magic"))
    if spoiled == "damage":
        batch["damage"] = [[17, "00000000"]]
    elif spoiled == "base_offset":
        batch["base_offset"] = 3
    elif spoiled == "control":
        batch["control"] = True
    elif spoiled == "magic":
        batch["damage"] = [[16, "01"]]
    return batch


def _fetch(writer: ScenarioWriter) -> None:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": writer.pick((-1, -1, -1, 0, 1)),
            "fetch_offset": writer.pick((0, 0, 1, 2, 5, 100, -1)),
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": writer.pick((1 << 20, 1 << 20, 1, 150)),
        }
        for index in writer.subset((0, 1, 7))
    ]
    writer.send(
        "Fetch",
        replica_id=-1,
        max_wait_ms=writer.pick((0, 100)),
        min_bytes=writer.pick((0, 1)),
        max_bytes=writer.pick((1 << 20, 1 << 20, 1, 200)),
        isolation_level=writer.pick((0, 1)),
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "@t", "topic_id": "$t.id", "partitions": partitions}],
    )


def _list_offsets(writer: ScenarioWriter) -> None:
    times = [-1, -2, _TIME, _TIME + 25, _TIME + 51, 0]
    if writer.version("ListOffsets") >= 7:
        times += [-3, -4, -5]
    partitions = [
        {"partition_index": index, "current_leader_epoch": writer.pick((-1, -1, 0, 5)), "timestamp": writer.pick(times)}
        for index in writer.subset((0, 1, 7))
    ]
    writer.send(
        "ListOffsets",
        replica_id=-1,
        isolation_level=writer.pick((0, 1)),
        timeout_ms=5_000,
        topics=[{"name": "@t", "partitions": partitions}],
    )


def _leader_epoch(writer: ScenarioWriter) -> None:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": writer.pick((-1, 0, 1)),
            "leader_epoch": writer.pick((0, 0, 1, -1)),
        }
        for index in writer.subset((0, 1, 7))
    ]
    writer.send("OffsetForLeaderEpoch", replica_id=-1, topics=[{"topic": "@t", "partitions": partitions}])
