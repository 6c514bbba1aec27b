"""
Recorded stories of share groups, played on a broker with all coordinators, in virtual time.

A connection whose name ends in `-at-2` is one to broker 2 of the stories with two brokers.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from typing import Any

from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS
from kohort.server.coordinators.entries import COORDINATORS
from kohort.storage.log import CleanerConfig
from kohort.storage.memory import MemoryStore
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.access.json_messages import json_of, request_of
from tests.broker.harness import Harness
from tests.broker.shares.story_forms import (
    PRODUCER,
    at,
    batch,
    by_index,
    decoded,
    flat,
    in_order,
    producers_of,
    put,
    with_counts,
)
from tests.broker.virtual_cluster import VirtualCluster
from tests.share.stories import APIS, PROFILES, SETTINGS, Player, Step, story

SHORT: dict[str, Any] = {
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_min_session_timeout_ms": "1000",
    "group_share_min_heartbeat_interval_ms": "500",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "500",
    "group_initial_rebalance_delay_ms": "0",
    "auto_create_topics_enable": "false",
}
PROFILES_OF_MEMBERS: dict[str, dict[str, Any]] = {
    "limits": {"group_share_max_size": "10", "group_share_max_share_sessions": "10"},
    "dlq": {"errors_deadletterqueue_auto_create_topics_enable": "true"},
    "acl": {"authorizer_class_name": CLASS_NAME, "allow_everyone_if_no_acl_found": "true"},
    "two": {},
}
TWO = "two"
"""The profile with two brokers; the first one has all coordinators."""
MOVED = "`node` is a connection to node 2"
TRIES = 200
LATE_MS = 400
"""How late the recorded node, and the machine that it ran on, were."""


class SharePlayer(Player):
    """
    A broker that plays a story.

    Args:
        passed: the numbers of steps whose answers are not compared.
        better: by step, a function that changes a step to what Kohort does on purpose.

    Attributes:
        calls: how many calls of the story were made.
    """

    def __init__(
        self, name: str, passed: frozenset[int] = frozenset(), better: dict[int, Callable[[Any], None]] | None = None
    ) -> None:
        profile = story(name)[0]["profile"]
        self._settings = SETTINGS | SHORT | PROFILES.get(profile, {}) | PROFILES_OF_MEMBERS.get(profile, {})
        super().__init__(_two_brokers(self._settings) if profile == TWO else _one_broker(self._settings))
        self.calls = 0
        self._name = name
        self._passed = passed
        self._better = better or {}
        self._open: dict[str, tuple[list[Any], int]] = {}
        self._forgetting: dict[str, list[Callable[[], None]]] = {}
        self._producers: dict[str, int] = {}
        self._at_two: set[str] = set()
        self._names: dict[tuple[str, str], list[str]] = {}
        """By group and member: the topics that the member has named last."""

    def play(self, steps: list[Step]) -> None:
        for step in steps[1:]:
            self._better.get(step["step"], _unchanged)(step)
        super().play(steps)

    def _note(self, step: Step) -> None:
        if MOVED in step.get("note", ""):
            self._at_two.add("node")

    def _topic(self, step: Step) -> None:
        configs = {name.replace(".", "_"): value for name, value in step.get("configs", {}).items()}
        name, harness = step["topic"], self.harness
        if isinstance(harness, VirtualCluster):
            harness.assign(name, *[step.get("replicas", [1])] * step["partitions"], **configs)
            topic = harness.broker.catalog.topic(name)
            assert topic is not None
            self.ids[name] = topic.topic_id
        else:
            self.ids[name] = harness.create(name, step["partitions"], **configs)

    def records(self, topic: str) -> list[Any]:
        records = super().records(topic)
        for record in records:
            value = record["value"] or {}
            if value.get("metadataHash"):
                value["metadataHash"] = "$hash"
            if record["record"] == "ShareGroupTargetAssignmentMetadata" and record["value"] is not None:
                value["assignmentTimestamp"] = "$ts" if value.get("assignmentTimestamp") else 0
        return records

    def _log(self, step: Step) -> None:
        if step["topic"] != CONSUMER_OFFSETS:
            super()._log(step)
            return
        shown = [record for record in self.records(step["topic"]) if record["key"].get("groupId") == step["group"]]
        expected = [record for batch in step["batches"] for record in batch]
        self.compare({**step, "variable": ()}, {"log": shown}, {"log": expected})

    def _ask(self, step: Step) -> tuple[ApiKey, int, list[Any]]:
        api = APIS[step["api"]]
        request = request_of(api, self._filled(step["request"]))
        who = step["who"]
        forgetting = self._forgetting.setdefault(who, [])
        version = step["version"]
        place = 2 if who.endswith("-at-2") or who in self._at_two else 1
        begin = self.harness.begin
        return api, version, begin(api, request, version=version, client_id=who, at=place, forgetting=forgetting)

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict) and "$batch" in value:
            return batch(self._filled(value["$batch"])).hex()
        if isinstance(value, dict):
            return {name: self._filled(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._filled(one) for one in value]
        if isinstance(value, str):
            found = PRODUCER.fullmatch(value)
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
        self.calls += 1
        request = step["request"]
        if step["api"] == "ShareGroupHeartbeat":
            member = request["groupId"], request["memberId"]
            if request["subscribedTopicNames"]:
                self._names[member] = request["subscribedTopicNames"]
            if request["memberEpoch"] == -1:
                self._names.pop(member, None)
        if step["api"] == "JoinGroup":
            protocols = [{**each, "metadata": b64decode(each["metadata"]).hex()} for each in request["protocols"]]
            step = {**step, "request": {**request, "protocols": protocols}}
        api, version, answers = self._ask(step)
        self._wait(answers)
        self._compare(step, api, version, answers[0])

    def _compare(self, step: Step, api: ApiKey, version: int, answer: Any) -> None:
        shown = decoded(json_of(api, version, answer))
        expected = step["response"]
        for place, name in producers_of(expected):
            self._producers[name] = at(shown, place)
            put(shown, place, f"$pid:{name}")
        shown = json.loads(self._without_ids(json.dumps(shown)))
        self.compare(step, {"response": shown}, {"response": expected})

    def compare(self, step: Step, shown: Any, expected: Any) -> None:
        if step["step"] in self._passed:
            return
        if step.get("api") == "ListGroups":
            groups = shown["response"]["groups"]
            shown["response"]["groups"] = [each for each in groups if each["groupId"].startswith(self._name)]
        if step.get("api") == "Fetch":  # How many dead letters a batch has is arbitrary.
            variable = [path for path in step.get("variable", ()) if "/records/" not in path]
            step, shown, expected = {**step, "variable": variable}, flat(shown), flat(expected)
        if self._name == "assignment-counts":  # Which partition a member gets is arbitrary.
            step, shown, expected = {**step, "variable": ()}, with_counts(shown), with_counts(expected)
        super().compare(step, in_order(by_index(shown)), in_order(by_index(expected)))

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
        if "who" in step:
            self._await_assignment(step)
        elif "group" in step:
            self._await_states(step)
        else:
            self._clean()

    def _await_states(self, step: Step) -> None:
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

    def _await_assignment(self, step: Step) -> None:
        for _ in range(TRIES):
            found = self._beat(step["group"], step["who"]).assignment
            if sum(len(topic.partitions) for topic in found.topic_partitions) > 1:
                return
            self.harness.node.advance(50)
        raise AssertionError(step)

    def _clean(self) -> None:
        self.harness.node.advance(1_000)
        self.harness.store.clean(CleanerConfig())
        self.harness.node.settle()

    def _beat(self, group_id: str, member_id: str) -> Any:
        """A heartbeat of epoch 0 with all names, that is not recorded."""
        request = m.ShareGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=0,
            subscribed_topic_names=self._names[group_id, member_id],
        )
        answer = self.harness.ask(ApiKey.SHARE_GROUP_HEARTBEAT, request, client_id=member_id)
        assert answer.error_code == 0
        return answer

    def _assignment(self, step: Step) -> None:
        for group_id, member_id in list(self._names):
            self._beat(group_id, member_id)
        request = m.ShareGroupDescribeRequest(group_ids=[step["group"]])
        (group,) = self.harness.ask(ApiKey.SHARE_GROUP_DESCRIBE, request).groups
        loads = []
        sharers: Counter[tuple[str, int]] = Counter()
        for member in group.members:
            partitions = [
                (topic.topic_name, each) for topic in member.assignment.topic_partitions for each in topic.partitions
            ]
            loads.append(len(partitions))
            sharers.update(partitions)
        assert (sorted(loads), sorted(sharers.values())) == (step["loads"], step["sharers"])

    def _restart(self, _step: Step) -> None:
        """Another process takes the logs over, at the same time."""
        old = self.harness.store
        assert isinstance(old, MemoryStore)
        self._forgetting.clear()
        node = VirtualNode(self.harness.node.clock.now_ms())
        store = MemoryStore(node.defer, clock=node.clock)
        store.fill(old.content())
        self.harness = Harness(store=store, node=node, **self._settings)
        self.harness.host(*COORDINATORS)

    def _raw(self, step: Step) -> None:
        """A version for which a connection is closed."""
        oldest, newest = self.harness.broker.versions[APIS[step["api"]]]
        assert not oldest <= step["version"] <= newest, step

    def _leader(self, step: Step) -> None:
        """Reorder the replicas of a topic, and elect the preferred leader."""
        name, others = step["topic"], [each for each in (1, 2) if each != step["leader"]]
        partition = m.AlterPartitionReassignmentsRequestReassignablePartition(
            partition_index=0, replicas=[step["leader"], *others]
        )
        topic = m.AlterPartitionReassignmentsRequestReassignableTopic(name=name, partitions=[partition])
        self.harness.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, m.AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=1_000)
        )
        wanted = [m.ElectLeadersRequestTopicPartitions(topic=name, partitions=[0])]
        self.harness.ask(
            ApiKey.ELECT_LEADERS, m.ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=1_000)
        )
        found = self.harness.broker.partitions.find(name, 0)
        assert found is not None
        assert found.leader_id == step["leader"]


def _one_broker(settings: dict[str, Any]) -> Harness:
    harness = Harness(**settings)
    for topic in INTERNAL_TOPICS:
        harness.create(topic, 1)
    harness.host(*COORDINATORS)
    return harness


def _two_brokers(settings: dict[str, Any]) -> Harness:
    cluster = VirtualCluster(racks=(None, None), **settings)
    for topic in INTERNAL_TOPICS:
        cluster.assign(topic, [1])
    cluster.coordinators.persister = cluster.hosted.persister
    cluster.node.settle()
    return cluster


def _unchanged(_step: Step) -> None:
    """A step as it was recorded."""
