"""Stories of logs: batches that are right and wrong, idempotent producers, and readers at any place."""

from typing import Any

from kohort.conformance.generated.writer import ScenarioWriter

_TIME = 1_700_000_000_000
_PARTITIONS = 2


def log_story(teller: ScenarioWriter) -> None:
    teller.topics["t"] = _PARTITIONS
    has_producer = teller.chance(0.6)
    if has_producer:
        teller.send(
            "InitProducerId",
            {"keep": {"pid": "producer_id", "epoch": "producer_epoch"}},
            transactional_id={"$none": True},
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
    sequences = [0] * _PARTITIONS
    for _ in range(teller.random.randint(5, 14)):
        kind = teller.random.random()
        if kind < 0.45:
            _produce(teller, has_producer, sequences)
        elif kind < 0.7:
            _fetch(teller)
        elif kind < 0.9:
            _list_offsets(teller)
        else:
            _leader_epoch(teller)


def _produce(teller: ScenarioWriter, has_producer: bool, sequences: list[int]) -> None:
    partition = teller.random.randrange(_PARTITIONS)
    batch = _batch(teller)
    count = len(batch["records"])
    if has_producer and teller.chance(0.7):
        offset = teller.pick((0, 0, 0, 0, -1, 1, -count))
        batch |= {
            "producer_id": "$pid",
            "producer_epoch": teller.pick((0, 0, 0, 0, 1)),
            "sequence": max(0, sequences[partition] + offset),
        }
        if offset == 0 and batch["producer_epoch"] == 0:
            sequences[partition] += count
    acks = teller.pick((-1, -1, 1, 1, 0, 2))
    index = teller.pick((partition, partition, partition, partition, 7))
    keywords: dict[str, Any] = {"on": "acks0", "unanswered": True} if acks == 0 else {}
    teller.send(
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
        teller.pause(120)  # Acknowledged is not yet readable everywhere: Kohort shows what is on the disk.


def _batch(teller: ScenarioWriter) -> dict[str, Any]:
    records: list[Any] = []
    for number in range(teller.random.randint(1, 4)):
        record: dict[str, Any] = {"value": f"v{number}", "time": _TIME + teller.random.randint(0, 50)}
        if teller.chance(0.4):
            record["key"] = f"k{number}"
        if teller.chance(0.2):
            record["headers"] = {"h": "x"}
        records.append(record)
    batch: dict[str, Any] = {"records": records, "time": _TIME, "codec": teller.pick(("none", "none", "gzip", "lz4"))}
    spoiled = teller.pick((None,) * 12 + ("damage", "base_offset", "control", "magic"))
    if spoiled == "damage":
        batch["damage"] = [[17, "00000000"]]
    elif spoiled == "base_offset":
        batch["base_offset"] = 3
    elif spoiled == "control":
        batch["control"] = True
    elif spoiled == "magic":
        batch["damage"] = [[16, "01"]]
    return batch


def _fetch(teller: ScenarioWriter) -> None:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": teller.pick((-1, -1, -1, 0, 1)),
            "fetch_offset": teller.pick((0, 0, 1, 2, 5, 100, -1)),
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": teller.pick((1 << 20, 1 << 20, 1, 150)),
        }
        for index in teller.subset((0, 1, 7))
    ]
    teller.send(
        "Fetch",
        replica_id=-1,
        max_wait_ms=teller.pick((0, 100)),
        min_bytes=teller.pick((0, 1)),
        max_bytes=teller.pick((1 << 20, 1 << 20, 1, 200)),
        isolation_level=teller.pick((0, 1)),
        session_id=0,
        session_epoch=-1,
        topics=[{"topic": "@t", "topic_id": "$t.id", "partitions": partitions}],
    )


def _list_offsets(teller: ScenarioWriter) -> None:
    times = [-1, -2, _TIME, _TIME + 25, _TIME + 51, 0]
    if teller.version("ListOffsets") >= 7:
        times += [-3, -4, -5]
    partitions = [
        {"partition_index": index, "current_leader_epoch": teller.pick((-1, -1, 0, 5)), "timestamp": teller.pick(times)}
        for index in teller.subset((0, 1, 7))
    ]
    teller.send(
        "ListOffsets",
        replica_id=-1,
        isolation_level=teller.pick((0, 1)),
        timeout_ms=5_000,
        topics=[{"name": "@t", "partitions": partitions}],
    )


def _leader_epoch(teller: ScenarioWriter) -> None:
    partitions = [
        {
            "partition": index,
            "current_leader_epoch": teller.pick((-1, 0, 1)),
            "leader_epoch": teller.pick((0, 0, 1, -1)),
        }
        for index in teller.subset((0, 1, 7))
    ]
    teller.send("OffsetForLeaderEpoch", replica_id=-1, topics=[{"topic": "@t", "partitions": partitions}])
