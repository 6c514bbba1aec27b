"""Recorded stories of members of share groups, played on a broker with all coordinators, in virtual time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kohort.model.ids import INTERNAL_TOPICS, SHARE_GROUP_STATE
from kohort.server.coordinators.coordinators import COORDINATORS
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records
from tests.broker.access.json_messages import json_of, request_of
from tests.broker.harness import Harness
from tests.share.stories import APIS, PROFILES, SETTINGS, Player, Step, story

SHORT: dict[str, Any] = {
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_min_session_timeout_ms": "1000",
    "group_share_min_heartbeat_interval_ms": "500",
    "group_initial_rebalance_delay_ms": "0",
    "auto_create_topics_enable": "false",
}
PROFILES_OF_MEMBERS: dict[str, dict[str, Any]] = {
    "limits": {"group_share_max_size": "10", "group_share_max_share_sessions": "10"},
    "dlq": {"errors_deadletterqueue_auto_create_topics_enable": "true"},
}
TRIES = 200
LATE_MS = 400
"""How late the recorded node, and the machine that it ran on, were."""

_PRODUCER = re.compile(r"\$pid:([a-zA-Z0-9._-]+)")


def player_of(name: str) -> SharePlayer:
    profile = story(name)[0]["profile"]
    settings = PROFILES.get(profile, {}) | PROFILES_OF_MEMBERS.get(profile, {})
    return SharePlayer(hosting(Harness(**SETTINGS, **SHORT, **settings)))


def hosting(harness: Harness) -> Harness:
    for topic in INTERNAL_TOPICS:
        if harness.broker.catalog.topic(topic) is None:
            harness.create(topic, 1)
    harness.host(*COORDINATORS)
    return harness


class SharePlayer(Player):
    """
    A broker that plays stories of members.

    Attributes:
        better: by step, a function that changes a step to what Kohort does on purpose.
    """

    def __init__(self, harness: Harness) -> None:
        super().__init__(harness)
        self.better: dict[int, Callable[[Any], None]] = {}
        self._open: dict[str, tuple[list[Any], int]] = {}
        self._forgetting: dict[str, list[Callable[[], None]]] = {}
        self._producers: dict[str, int] = {}

    def play(self, steps: list[Step]) -> None:
        for step in steps[1:]:
            self.better.get(step["step"], _unchanged)(step)
        super().play(steps)

    def _topic(self, step: Step) -> None:
        configs = {name.replace(".", "_"): value for name, value in step.get("configs", {}).items()}
        self.ids[step["topic"]] = self.harness.create(step["topic"], step["partitions"], **configs)

    def _log(self, step: Step) -> None:
        """The records of groups are compared where groups are tested."""
        if step["topic"] == SHARE_GROUP_STATE:
            super()._log(step)

    def _ask(self, step: Step) -> tuple[ApiKey, int, list[Any]]:
        api = APIS[step["api"]]
        request = request_of(api, self._filled(step["request"]))
        who = step["who"]
        forgetting = self._forgetting.setdefault(who, [])
        version = step["version"]
        begin = self.harness.begin
        return api, version, begin(api, request, version=version, client_id=who, forgetting=forgetting)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict) and "$batch" in value:
            return _batch(self._filled(value["$batch"])).hex()
        if isinstance(value, dict):
            return {name: self._filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._filled(one) for one in value]
        if isinstance(value, str):
            found = _PRODUCER.fullmatch(value)
            if found is not None:
                return self._producers[found[1]]
            if value.startswith("$now"):
                return self.harness.node.clock.now_ms() + int(value[4:] or 0)
            return self._with_ids(value)
        return value

    def _wait(self, answers: list[Any], most_ms: int = 40_000) -> None:
        """Let time pass until there is an answer, and no longer."""
        node = self.harness.node
        node.settle()
        until = node.clock.now_ms() + most_ms
        while not answers and node.clock.now_ms() < until:
            node.advance(1 if node.wheel.next_ms is None else max(node.wheel.next_ms - node.clock.now_ms(), 1))
        assert answers, "no answer"

    def _call(self, step: Step) -> None:
        api, version, answers = self._ask(step)
        self._wait(answers)
        self._compare(step, api, version, answers[0])

    def _compare(self, step: Step, api: ApiKey, version: int, answer: Any) -> None:
        shown = _decoded(json_of(api, version, answer))
        expected = step["response"]
        for place, name in _producers_of(expected):
            self._producers[name] = _at(shown, place)
            _put(shown, place, f"$pid:{name}")
        shown = json.loads(self._without_ids(json.dumps(shown)))
        self.compare(step, {"response": shown}, {"response": expected})

    def compare(self, step: Step, shown: Any, expected: Any) -> None:
        if step.get("api") == "Fetch":  # How many dead letters a batch has is arbitrary.
            variable = [path for path in step.get("variable", ()) if "/records/" not in path]
            step, shown, expected = {**step, "variable": variable}, _flat(shown), _flat(expected)
        super().compare(step, _by_index(shown), _by_index(expected))

    def _send(self, step: Step) -> None:
        _, _, answers = self._ask(step)
        self._open[step["who"]] = answers, self.harness.node.clock.now_ms()
        self.harness.node.settle()

    def _receive(self, step: Step) -> None:
        answers, begun = self._open.pop(step["who"])
        self._wait(answers)
        assert abs(self.harness.node.clock.now_ms() - begun - step["about_ms"]) <= LATE_MS, step
        self._compare(step, APIS[step["api"]], step["version"], answers[0])

    def _disconnect(self, step: Step) -> None:
        for forget in self._forgetting.pop(step["who"], []):
            forget()
        self.harness.node.advance(300)

    def _load(self, step: Step) -> None:
        topic_id = f"$topic:{step['topic']}"
        partitions = [{"partitionIndex": index, "acknowledgementBatches": []} for index in range(step["partitions"])]
        request = {
            "groupId": step["group"],
            "memberId": "loader",
            "shareSessionEpoch": 0,
            "maxWaitMs": 60,
            "minBytes": 1 << 30,
            "maxBytes": 1 << 20,
            "maxRecords": -1,
            "batchSize": 500,
            "topics": [{"topicId": topic_id, "partitions": partitions}],
        }
        for _ in range(TRIES):
            _, _, answers = self._ask({**step, "who": "loader", "api": "ShareFetch", "version": 2, "request": request})
            self._wait(answers)
            if sum(len(topic.partitions) for topic in answers[0].responses) == step["partitions"]:
                return
        raise AssertionError(step)

    def _await(self, step: Step) -> None:
        request = {"groups": [{"groupId": step["group"], "topics": None}]}
        topic = self.harness.broker.catalog.topic(step["topic"])
        assert topic is not None
        for _ in range(TRIES):
            asked = {"who": "admin", "api": "DescribeShareGroupOffsets", "version": 1, "request": request}
            _, _, answers = self._ask(asked)
            self._wait(answers)
            for found in answers[0].groups[0].topics:
                if found.topic_name == topic.name and len(found.partitions) == topic.partition_count:
                    return
            self.harness.node.advance(50)
        raise AssertionError(step)

    def _restart(self, _step: Step) -> None:
        old = self.harness
        self._forgetting.clear()
        settings = {**SETTINGS, **SHORT}
        self.harness = Harness(store=old.store, node=old.node, **settings)
        self.harness.host(*COORDINATORS)


def _unchanged(_step: Step) -> None:
    """A step as it was recorded."""


def _batch(fields: dict[str, Any]) -> bytes:
    values = fields["values"]
    keys = fields.get("keys") or [None] * len(values)
    headers = fields.get("headers") or [None] * len(values)
    records = [
        BatchRecord(
            None if key is None else key.encode(),
            None if value is None else value.encode(),
            [(name, None if one is None else one.encode()) for name, one in headers[number] or ()],
            fields.get("timestamp", 1_700_000_000_000 + number),
        )
        for number, (key, value) in enumerate(zip(keys, values, strict=True))
    ]
    return build_batch(
        records,
        timestamp_ms=fields.get("timestamp", 1_700_000_000_000),
        producer_id=fields.get("producerId", -1),
        producer_epoch=fields.get("producerEpoch", -1),
        base_sequence=fields.get("baseSequence", -1),
        transactional=fields.get("transactional", False),
    )


def _decoded(value: Any) -> Any:
    """Records of a ShareFetch in the form of the recordings."""
    if isinstance(value, dict):
        return {
            name: _records(bytes.fromhex(one)) if name == "records" and isinstance(one, str) else _decoded(one)
            for name, one in value.items()
        }
    return [_decoded(one) for one in value] if isinstance(value, list) else value


def _records(data: bytes) -> list[Any]:
    found = []
    for position, header in iter_batches(data):
        batch = data[position : position + header.size_bytes]
        is_control = bool(header.attributes & 0x20)
        records = [
            {"offset": each.offset}
            | (
                {}
                if is_control
                else {
                    "key": each.key and each.key.decode(),
                    "value": None if each.value is None else each.value.decode(),
                    "headers": [[name, None if value is None else value.decode()] for name, value in each.headers],
                }
            )
            for each in read_records(batch)
        ]
        found.append({"baseOffset": header.base_offset, "lastOffset": header.next_offset - 1, "records": records})
    return found


_TAGGED_DEFAULTS = {
    "nodeEndpoints": [],
    "currentLeader": {"leaderId": -1, "leaderEpoch": -1},
    "divergingEpoch": {"epoch": -1, "endOffset": -1},
    "snapshotId": {"endOffset": -1, "epoch": -1},
}
"""Tagged fields that the recordings show with their defaults, too."""

_KEPT = {"baseOffset", "lastOffset", "records"}


def _by_index(value: Any) -> Any:
    """Batches without what is not compared, partitions by index, topics by id."""
    if isinstance(value, dict):
        if value.keys() >= _KEPT:
            records = [
                {name: one[name] for name in ("offset", "key", "value", "headers") if one.get(name, ()) not in ((), [])}
                for one in value["records"]
            ]
            is_control = value.get("attributes", 0) & 0x20 or any("key" not in one for one in records)
            records = [{"offset": one["offset"]} for one in records] if is_control else records
            return {"baseOffset": value["baseOffset"], "lastOffset": value["lastOffset"], "records": records}
        return {name: _by_index(one) for name, one in value.items() if one != _TAGGED_DEFAULTS.get(name, _by_index)}
    if not isinstance(value, list):
        return value
    found = [_by_index(one) for one in value]
    for name in ("partitionIndex", "partition", "topicId", "topicName"):
        if found and all(isinstance(one, dict) and name in one for one in found):
            found.sort(key=lambda one: one[name])
            break
    return found


def _flat(value: Any) -> Any:
    """Records without their batches."""
    if isinstance(value, dict):
        return {
            name: [each for batch in one for each in batch["records"]] if name == "records" and one else _flat(one)
            for name, one in _by_index(value).items()
        }
    return [_flat(one) for one in value] if isinstance(value, list) else value


def _producers_of(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], str]]:
    """The places of producer ids that an answer gives out."""
    if isinstance(value, dict):
        return [each for name, one in value.items() if name != "records" for each in _producers_of(one, (*place, name))]
    if isinstance(value, list):
        return [each for number, one in enumerate(value) for each in _producers_of(one, (*place, number))]
    found = _PRODUCER.fullmatch(value) if isinstance(value, str) else None
    return [] if found is None else [(place, found[1])]


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for one in place:
        value = value[one]
    return value


def _put(value: Any, place: tuple[Any, ...], new: Any) -> None:
    _at(value, place[:-1])[place[-1]] = new
