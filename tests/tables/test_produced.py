"""What a producer is answered, and what is stored, case by case: as Apache Kafka 4.2.1 answered and stored it (recorded)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness, produce_request
from tests.tables.produced_cases import CASES, stored, summarize

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "produced-4.2.1.json").read_text(encoding="utf-8")
)
TOPIC = "case-0"
DIFFERENT = {
    "length 14": "the reason is told; Kafka gives the code alone",
    "a wrong record length inside": "refused; Kafka stores what no consumer can read",
    **dict.fromkeys(
        ("a key of length -2", "a value of length -2", "a header with a value of length -2"),
        "refused; Java takes it for null, other clients cannot read on",
    ),
    "an offset of more than 32 bits": "refused; Java takes the lower 32 bits, other clients all of them",
    **dict.fromkeys(
        ("an offset behind the batch", "an offset before the batch"), "refused; some clients go on at that offset"
    ),
}
"""Where Kohort differs, and why; docs/unsupported.md says so, too."""


def test_every_case_is_recorded() -> None:
    assert RECORDED.keys() == CASES.keys()
    assert DIFFERENT.keys() <= CASES.keys()


def told(name: str) -> dict[str, Any]:
    case = CASES[name]
    harness = Harness()
    harness.create(TOPIC, 1, **{key.replace(".", "_"): value for key, value in case.configs.items()})
    now_ms = harness.node.clock.now_ms()
    answers = []
    for send in case.sends:
        request = produce_request(TOPIC, {0: send(now_ms)}, acks=case.acks)
        answer = harness.ask(ApiKey.PRODUCE, request, version=case.version)
        answers.append(summarize(answer.responses[0].partition_responses[0], now_ms, TOPIC))
    return {"answers": answers, "stored": stored(fetched(harness), now_ms)}


def fetched(harness: Harness) -> bytes:
    wanted = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 26)
    topic = m.FetchRequestFetchTopic(topic=TOPIC, partitions=[wanted])
    request = m.FetchRequest(replica_id=-1, max_bytes=1 << 26, session_epoch=-1, topics=[topic])
    answer = harness.ask(ApiKey.FETCH, request, version=11)
    return bytes(answer.responses[0].partitions[0].records or b"")


@pytest.mark.parametrize("name", [name for name in CASES if name not in DIFFERENT])
def test_as_apache_kafka_answers(name: str) -> None:
    assert told(name) == RECORDED[name]


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_different_is_so_still(name: str) -> None:
    assert told(name) != RECORDED[name]
