"""
Recorded stories of share groups on a whole broker, in virtual time: group coordinator, share coordinator, topics and records.

The steps of `tests.share.stories`, and those that need more than the share coordinator. A step with an API that this broker
does not serve yet is passed over.
"""

from base64 import b64decode
from collections import Counter
from typing import Any

from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kohort.server.coordinators.group_coordinator import group_coordinator
from kohort.server.coordinators.share_coordinator import share_coordinator
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch
from tests.broker.harness import Harness
from tests.share.stories import PROFILES, SETTINGS, Player, Step, story

NODE: dict[str, Any] = {
    **SETTINGS,
    "auto_create_topics_enable": "false",
    "group_initial_rebalance_delay_ms": "0",
    "group_share_min_record_lock_duration_ms": "1000",
    "group_share_min_session_timeout_ms": "1000",
    "group_share_min_heartbeat_interval_ms": "500",
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "500",
}
"""The settings of every recorded node."""
MORE_PROFILES: dict[str, dict[str, Any]] = {
    **PROFILES,
    "limits": {"group_share_max_size": "10", "group_share_max_share_sessions": "10"},
    "dlq": {"errors_deadletterqueue_auto_create_topics_enable": "true"},
    "acl": {"authorizer_class_name": CLASS_NAME, "allow_everyone_if_no_acl_found": "true"},
}
_TRIES = 50
_FIRST_TIMESTAMP_MS = 1_700_000_000_000


class StoryPlayer(Player):
    """
    Args:
        passed: the numbers of steps that are passed over.
    """

    def __init__(self, name: str, passed: frozenset[int] = frozenset()) -> None:
        self.name = name
        self.passed = passed
        harness = Harness(**NODE, **MORE_PROFILES[story(name)[0]["profile"]])
        for topic in (CONSUMER_OFFSETS, SHARE_GROUP_STATE):
            harness.create(topic, 1)
        harness.host(share_coordinator, group_coordinator)
        super().__init__(harness)
        self._names: dict[tuple[str, str], list[str]] = {}
        """By group and member: the topics that the member has named last."""
        self.played = 0

    def play(self, steps: list[Step]) -> None:
        super().play([step if step.get("step") not in self.passed else _note_of(step) for step in steps])

    def _call(self, step: Step) -> None:
        api = next(api for api in ApiKey if api.api_name == step["api"])
        if api in (ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE):
            self.harness.node.advance(step["request"].get("maxWaitMs", 0))
            return
        self.played += 1
        request = step["request"]
        if api is ApiKey.SHARE_GROUP_HEARTBEAT and request["subscribedTopicNames"]:
            self._names[request["groupId"], request["memberId"]] = request["subscribedTopicNames"]
        if api is ApiKey.SHARE_GROUP_HEARTBEAT and request["memberEpoch"] == -1:
            self._names.pop((request["groupId"], request["memberId"]), None)
        if api is ApiKey.PRODUCE:
            step = {**step, "request": _with_batches(request)}
        if api is ApiKey.JOIN_GROUP:
            step = {**step, "request": _with_metadata(request)}
        super()._call(step)

    def compare(self, step: Step, shown: Any, expected: Any) -> None:
        if step.get("api") == "ListGroups":
            groups = shown["response"]["groups"]
            shown["response"]["groups"] = [each for each in groups if each["groupId"].startswith(self.name)]
        if self.name == "assignment-counts":  # Which partition a member gets is arbitrary.
            step, shown, expected = {**step, "variable": ()}, _with_counts(shown), _with_counts(expected)
        super().compare(step, _in_order(_with_defaults(shown)), _in_order(_with_defaults(expected)))

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
        shown = [record for record in self.records(step["topic"]) if record["key"].get("groupId") == step["group"]]
        expected = [record for batch in step["batches"] for record in batch]
        if step["topic"] == SHARE_GROUP_STATE or "batches" in step.get("variable", ()):
            shown.sort(key=str)
            expected.sort(key=str)
        self.compare({"variable": []}, {"log": shown}, {"log": expected})

    def _await(self, step: Step) -> None:
        for _ in range(_TRIES):
            if self._is_there(step):
                return
            self.harness.node.advance(50)
        raise AssertionError(step)

    def _is_there(self, step: Step) -> bool:
        if "who" in step:
            answer = self._beat(step["group"], step["who"])
            partitions = sum(len(topic.partitions) for topic in (answer.assignment or _NOTHING).topic_partitions)
            return partitions > 1
        asked = m.DescribeShareGroupOffsetsRequestGroup(group_id=step["group"], topics=None)
        request = m.DescribeShareGroupOffsetsRequest(groups=[asked])
        (group,) = self.harness.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, request).groups
        wanted = self.harness.broker.catalog.topic(step["topic"])
        assert wanted is not None
        return any(
            topic.topic_name == step["topic"] and len(topic.partitions) == wanted.partition_count
            for topic in group.topics
        )

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

    def _load(self, step: Step) -> None:
        """Share partitions at their leader."""

    def _disconnect(self, step: Step) -> None:
        """Connections have no state here."""


_NOTHING = m.ShareGroupHeartbeatResponseAssignment(topic_partitions=())


def _note_of(step: Step) -> Step:
    return {**{name: step[name] for name in ("mark", "delay_ms") if name in step}, "kind": "note"}


def _with_counts(value: Any) -> Any:
    """Lists of partitions as their lengths."""
    if isinstance(value, dict):
        return {name: len(one) if name == "partitions" else _with_counts(one) for name, one in value.items()}
    return [_with_counts(one) for one in value] if isinstance(value, list) else value


def _with_metadata(request: Any) -> Any:
    """A JoinGroup request with its bytes in hexadecimal digits."""
    protocols = [{**each, "metadata": b64decode(each["metadata"]).hex()} for each in request["protocols"]]
    return {**request, "protocols": protocols}


def _with_batches(request: Any) -> Any:
    """A Produce request with its records as bytes."""
    topics = []
    for topic in request["topicData"]:
        partitions = []
        for partition in topic["partitionData"]:
            values = partition["records"]["$batch"]["values"]
            batch = build_batch(
                [
                    BatchRecord(key=None, value=value.encode(), timestamp_ms=_FIRST_TIMESTAMP_MS + number)
                    for number, value in enumerate(values)
                ],
                timestamp_ms=_FIRST_TIMESTAMP_MS,
            )
            partitions.append({**partition, "records": bytes(batch).hex()})
        topics.append({**topic, "partitionData": partitions})
    return {**request, "topicData": topics}


_DEFAULTS: dict[str, Any] = {"currentLeader": {"leaderId": -1, "leaderEpoch": -1}, "nodeEndpoints": []}
"""Tagged fields, which the recordings show with their defaults, too."""


def _with_defaults(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_defaults(one) for name, one in value.items() if one != _DEFAULTS.get(name, _NO_DEFAULT)}
    return [_with_defaults(one) for one in value] if isinstance(value, list) else value


_NO_DEFAULT = object()


def _in_order(value: Any) -> Any:
    """Lists in the order of the recordings."""
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    found = [_in_order(one) for one in value]
    for name in ("partitionIndex", "memberId", "topicName", "topicId", "groupId"):
        if found and all(isinstance(one, dict) and name in one for one in found):
            found.sort(key=lambda one: str(one[name]))
            break
    return found
