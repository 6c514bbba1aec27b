"""
Recorded stories of share groups: steps of raw frames that Apache Kafka 4.4.0 answered, played on a broker in virtual time.

`tests/data/share/share-stories.jsonl.gz` has one step a line. A step names the connection (`who`), the API, the request and the
response, or the records that a coordinator has written since the last look. Ids of topics are `$topic:NAME`, times `$ts`. The
paths in `variable` differed between two recordings.
"""

import gzip
import json
import re
from functools import cache
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, UUID, uuid5

from kohort.model.ids import TopicPartition, uuid_text
from kohort.records.json_form import json_record
from kohort.records.serde import CoordinatorRecordSerde
from kohort.wire.apis import ApiKey
from kohort.wire.batches import iter_batches, read_records
from tests.broker.access.json_messages import json_of, request_of
from tests.broker.harness import Harness

PATH = Path(__file__).parent.parent / "data" / "share" / "share-stories.jsonl.gz"
PROFILES: dict[str, dict[str, Any]] = {
    "plain": {},
    "restart": {},
    "snap": {"share_coordinator_snapshot_update_records_per_snapshot": "3"},
    "prune": {
        "share_coordinator_snapshot_update_records_per_snapshot": "3",
        "share_coordinator_state_topic_prune_interval_ms": "1500",
        "share_coordinator_cold_partition_snapshot_interval_ms": "4000",
    },
}
SETTINGS: dict[str, Any] = {
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
}
"""Of every recorded node, as far as the stories of the share coordinator need them."""
APIS = {api.api_name: api for api in ApiKey}
_TOPIC = re.compile(r"\$topic:([a-zA-Z0-9._-]+)")
_TIMES = frozenset({"createTimestamp", "writeTimestamp"})
_TAGGED = {"ShareSnapshot": {"deliveryCompleteCount": -1}, "ShareUpdate": {"deliveryCompleteCount": -1}}
"""Tagged fields of records, which the recordings show with their defaults, too."""

Step = dict[str, Any]


@cache
def _all() -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = {}
    with gzip.open(PATH, "rt") as lines:
        for line in lines:
            step = json.loads(line)
            found.setdefault(step["story"], []).append(step)
    return found


def story(name: str) -> list[Step]:
    """The steps of a story; the first one tells of the story itself."""
    return _all()[name]


class Player:
    """A broker that plays stories. Every step asserts that Kohort does what Kafka did."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.ids: dict[str, UUID] = {}
        self._seen: dict[str, int] = {}
        """By log: the offset up to which its records were looked at."""

    def play(self, steps: list[Step]) -> None:
        for step in steps[1:]:
            for topic in step.get("mark", ()):
                self._seen[topic] = self._end(topic)
            self.harness.node.advance(step.get("delay_ms", 0))
            getattr(self, f"_{step['kind']}")(step)

    def _note(self, step: Step) -> None:
        """A text."""

    def _topic(self, step: Step) -> None:
        self.ids[step["topic"]] = self.harness.create(step["topic"], step["partitions"])

    def _call(self, step: Step) -> None:
        api = APIS[step["api"]]
        request = request_of(api, json.loads(self._with_ids(json.dumps(step["request"]))))
        answer = self.harness.ask(api, request, version=step["version"], client_id=step["who"])
        shown = json.loads(self._without_ids(json.dumps(json_of(api, step["version"], answer))))
        self.compare(step, {"response": shown}, {"response": step["response"]})

    def _log(self, step: Step) -> None:
        shown = [record for record in self.records(step["topic"]) if record["key"].get("groupId") == step["group"]]
        expected = [record for batch in step["batches"] for record in batch]
        if "batches" in step.get("variable", ()):
            shown.sort(key=json.dumps)
            expected.sort(key=json.dumps)
        assert shown == expected, step

    def compare(self, step: Step, shown: Any, expected: Any) -> None:
        for path in step.get("variable", ()):
            _forget(shown, path.split("/"))
            _forget(expected, path.split("/"))
        assert _sorted(shown) == _sorted(expected), step

    def records(self, topic: str) -> list[Any]:
        """The records of an internal topic of one partition since the last look, as the recordings show them."""
        log = self._log_of(topic)
        start, self._seen[topic] = max(self._seen.get(topic, 0), log.log_start_offset), log.end_offset
        types = CoordinatorRecordSerde(topic)
        found: list[Any] = []
        while start < log.end_offset:
            data, last = log.read(start, bytes_max=1 << 20), start
            for position, header in iter_batches(data):
                records = read_records(data[position : position + header.size_bytes])
                found += [_record(types, each.key, each.value) for each in records if each.key and each.offset >= start]
                last = header.next_offset
            start = last
        shown: list[Any] = json.loads(self._without_ids(json.dumps(found)))
        return shown

    def _end(self, topic: str) -> int:
        return 0 if self.harness.broker.catalog.topic(topic) is None else int(self._log_of(topic).end_offset)

    def _log_of(self, topic: str) -> Any:
        return self.harness.store.get(TopicPartition(topic, 0))

    def _with_ids(self, text: str) -> str:
        return _TOPIC.sub(lambda found: uuid_text(self._id(found[1])), text)

    def _without_ids(self, text: str) -> str:
        for name, topic_id in self.ids.items():
            text = text.replace(uuid_text(topic_id), f"$topic:{name}")
        return text.replace('"port": 9092', '"port": "$port"')

    def _id(self, name: str) -> UUID:
        """The id of a topic, or one that no topic has."""
        return self.ids.setdefault(name, uuid5(NAMESPACE_OID, name))


def _record(types: CoordinatorRecordSerde, key: bytes, value: bytes | None) -> Any:
    record_type = types.type_of(key)
    row = json_record(record_type, key, value)
    shown = row["value"]
    if shown is not None:
        shown = _TAGGED.get(record_type.name, {}) | shown
        shown |= dict.fromkeys(_TIMES & shown.keys(), "$ts")
    return {"type": record_type.key_type, "record": record_type.name, "key": row["key"], "value": shown}


def _forget(value: Any, path: list[str]) -> None:
    *places, last = path
    for place in places:
        value = value[int(place) if isinstance(value, list) else place]
    value[int(last) if isinstance(value, list) else last] = None


def _sorted(value: Any) -> Any:
    """Lists of partitions and topics in the order of the recordings, which is that of indexes and ids."""
    if isinstance(value, dict):
        return {name: _sorted(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    found = [_sorted(one) for one in value]
    for name in ("partition", "topicId"):
        if found and all(isinstance(one, dict) and name in one for one in found):
            found.sort(key=lambda one: one[name])
    return found
