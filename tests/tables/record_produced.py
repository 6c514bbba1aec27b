"""
Asks Apache Kafka 4.2.1 what it answers to the cases of `produced_cases`, and keeps it for the tests:

    python -m tests.tables.record_produced
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from kohort.testing.kafka import KafkaNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.clients.waiting import wait_until
from tests.crash.connection import Connection
from tests.tables.produced_cases import CASES, Case, stored, summarize

RECORDED = Path(__file__).parents[1] / "data" / "produced-4.2.1.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, KafkaNode(Path(directory)) as node, Connection(node.port) as asker:
        rows = {}
        for number, (name, case) in enumerate(CASES.items()):
            topic = f"case-{number}"
            create(asker, topic, case)
            rows[name] = ask(asker, topic, case)
    RECORDED.write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")


def create(asker: Connection, topic: str, case: Case) -> None:
    configs = [m.CreateTopicsRequestCreatableTopicConfig(name=key, value=value) for key, value in case.configs.items()]
    wanted = m.CreateTopicsRequestCreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
    answer = asker.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[wanted], timeout_ms=30_000))
    assert answer.topics[0].error_code == 0, (topic, answer)

    def is_led() -> bool | None:
        return True if fetch(asker, topic).error_code == 0 else None

    wait_until(is_led, what=f"a leader of {topic}")


def ask(asker: Connection, topic: str, case: Case) -> dict[str, Any]:
    answers = []
    now_ms = time.time_ns() // 1_000_000
    for send in case.sends:
        data = m.ProduceRequestPartitionProduceData(index=0, records=send(now_ms))
        wanted = m.ProduceRequestTopicProduceData(name=topic, partition_data=[data])
        request = m.ProduceRequest(acks=case.acks, timeout_ms=30_000, topic_data=[wanted])
        answer = asker.ask(ApiKey.PRODUCE, case.version, request)
        answers.append(summarize(answer.responses[0].partition_responses[0], now_ms, topic))
    return {"answers": answers, "stored": stored(bytes(fetch(asker, topic).records or b""), now_ms)}


def fetch(asker: Connection, topic: str) -> Any:
    wanted = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 26)
    request = m.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 26,
        session_epoch=-1,
        topics=[m.FetchRequestFetchTopic(topic=topic, partitions=[wanted])],
    )
    return asker.ask(ApiKey.FETCH, 11, request).responses[0].partitions[0]


if __name__ == "__main__":
    main()
