"""
Conversations of real clients with Apache Kafka 4.2.1, held again with this transaction coordinator: the same requests at the
same times get the same answers, and the same markers are sent.

The requests of Kafka's partition leaders are in the transcripts, too: AddPartitionsToTxn v5 verifies or adds a partition.
"""

from typing import Any

import pytest

from kohort.machine.shard import EndTransaction
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import Decoded, request_reader, response_reader
from tests.broker.recorded import WIRE, frames
from tests.transaction.bench import Bench, Topic

NAMES = (
    *("aiokafka_txn", "kafkapython_txn", "librdkafka_txn", "streams_exactly_once"),
    *("txn_fenced", "txn_timeout", "txn_with_offsets", "txn_with_offsets_consumer_protocol"),
)
COORDINATOR = {
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
}
CONCURRENT = "51"
"""Kafka's answer while markers are under way. The markers of this test are written at once, so this answer is not compared."""

Marker = tuple[str, int, int, int, bool]
"""Topic, partition, producer id, producer epoch, whether it is a commit."""


class Conversation:
    """Holds one again, request by request."""

    def __init__(self, name: str) -> None:
        self.frames = [frame for frame in frames(WIRE / f"{name}.jsonl.gz") if frame["api_key"] in API_KEYS]
        self.bench = Bench(partition_count=4, transaction_abort_timed_out_transaction_cleanup_interval_ms=1000)
        self.bench.image["__consumer_offsets"] = Topic("__consumer_offsets", 4)
        self.replies = {
            (frame["conn"], frame["correlation_id"]): frame for frame in self.frames if frame["dir"] == "response"
        }
        self.markers: list[Marker] = []

    def hold(self) -> list[tuple[str, Any, Any]]:
        """API, our answer and Kafka's, for each answer that Kafka gave."""
        began_ms = self.bench.node.clock.now_ms()
        compared = []
        for frame in self.frames:
            self.bench.advance(max(int(frame["t"] * 1000) - (self.bench.node.clock.now_ms() - began_ms), 0))
            key = API_KEYS[frame["api_key"]]
            if frame["dir"] != "request" or key not in (*COORDINATOR, ApiKey.WRITE_TXN_MARKERS):
                continue
            data = bytes.fromhex(frame["hex"])
            request: Any = request_reader(key, frame["api_version"])(data, read_request_header(data)[4])
            if key is ApiKey.WRITE_TXN_MARKERS:
                self._expect(request)
                continue
            theirs = self._theirs(frame, key)
            self._name_topics(request)
            if key is ApiKey.INIT_PRODUCER_ID and theirs["producer_id"] >= 0:
                self.bench.ids.next = theirs["producer_id"]
            compared.append((key.api_name, self._ours(frame, key, request), theirs))
        return compared

    def sent(self) -> list[Marker]:
        return [
            _marker(topic_partition.topic, topic_partition.partition, end)
            for topic_partition, end in self.bench.markers.sent
        ]

    def _ours(self, frame: dict[str, Any], key: ApiKey, request: Any) -> dict[str, Any]:
        version = frame["api_version"]
        if key is ApiKey.INIT_PRODUCER_ID and request.transactional_id is None:
            return self._theirs(frame, key)  # not the coordinator's
        response = self.bench.ask(self.bench.service.handlers()[key], request, version)
        written = bytes(response_encoder(key, version)(frame["correlation_id"], response))[4:]
        return _read(key, version, written)

    def _theirs(self, frame: dict[str, Any], key: ApiKey) -> dict[str, Any]:
        reply = self.replies[frame["conn"], frame["correlation_id"]]
        return _read(key, frame["api_version"], bytes.fromhex(reply["hex"]))

    def _name_topics(self, request: Any) -> None:
        """Create the topics that a request names: the transcripts have no request that names one which does not exist."""
        batched = [topic for each in getattr(request, "transactions", ()) for topic in each.topics]
        for topic in (*batched, *getattr(request, "v3_and_below_topics", ())):
            self.bench.image.setdefault(topic.name, Topic(topic.name, 64))

    def _expect(self, request: Any) -> None:
        self.markers += [
            (topic.name, index, marker.producer_id, marker.producer_epoch, marker.transaction_result)
            for marker in request.markers
            for topic in marker.topics
            for index in topic.partition_indexes
        ]


def _marker(topic: str, partition: int, end: EndTransaction) -> Marker:
    return topic, partition, end.producer_id, end.producer_epoch, end.committed


def _read(key: ApiKey, version: int, data: bytes) -> dict[str, Any]:
    found = plain(response_reader(key, version)(data, read_response_header(data, key, version)[1]))
    assert isinstance(found, dict)
    return found


def plain(value: Any) -> Any:
    """A message as values alone; lists of structs sorted, for Kafka keeps no order in them."""
    if isinstance(value, Decoded):
        return {name: plain(getattr(value, name)) for name in value.field_names}
    if isinstance(value, tuple):
        return sorted((plain(item) for item in value), key=str)
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_conversation_goes_as_with_kafka(name: str) -> None:
    conversation = Conversation(name)
    compared = conversation.hold()
    for index, (api, ours, theirs) in enumerate(compared):
        if f"error_code': {CONCURRENT}" not in str(theirs):
            assert ours == theirs, f"answer {index}, {api}"
    assert compared
    assert sorted(conversation.sent()) == sorted(conversation.markers)
