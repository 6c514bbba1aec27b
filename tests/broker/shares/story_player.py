"""Recorded stories of share groups, played with the records of their groups."""

from base64 import b64decode
from collections import Counter
from typing import Any

from kohort.broker.acls.authorizer import CLASS_NAME
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.broker.shares.player import PROFILES_OF_MEMBERS, SHORT, TRIES, SharePlayer, hosting
from tests.share.stories import PROFILES, SETTINGS, Step, story

_PROFILES: dict[str, dict[str, Any]] = {
    **PROFILES,
    **PROFILES_OF_MEMBERS,
    "acl": {"authorizer_class_name": CLASS_NAME, "allow_everyone_if_no_acl_found": "true"},
}
_SHORT_CONSUMERS: dict[str, Any] = {
    "group_consumer_min_session_timeout_ms": "1000",
    "group_consumer_min_heartbeat_interval_ms": "500",
}


class StoryPlayer(SharePlayer):
    """
    Args:
        passed: the numbers of steps whose answers are not compared.

    Attributes:
        calls: how many calls of the story were made.
    """

    def __init__(self, name: str, passed: frozenset[int] = frozenset()) -> None:
        profile = _PROFILES[story(name)[0]["profile"]]
        super().__init__(hosting(Harness(**SETTINGS, **SHORT, **_SHORT_CONSUMERS, **profile)))
        self.calls = 0
        self._name = name
        self._passed = passed
        self._names: dict[tuple[str, str], list[str]] = {}
        """By group and member: the topics that the member has named last."""

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
        super()._call(step)

    def compare(self, step: Step, shown: Any, expected: Any) -> None:
        if step["step"] in self._passed:
            return
        if step.get("api") == "ListGroups":
            groups = shown["response"]["groups"]
            shown["response"]["groups"] = [each for each in groups if each["groupId"].startswith(self._name)]
        if self._name == "assignment-counts":  # Which partition a member gets is arbitrary.
            step, shown, expected = {**step, "variable": ()}, _with_counts(shown), _with_counts(expected)
        super().compare(step, _in_order(shown), _in_order(expected))

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
        """The records of share states are compared where members are tested."""
        if step["topic"] == CONSUMER_OFFSETS:
            shown = [record for record in self.records(step["topic"]) if record["key"].get("groupId") == step["group"]]
            expected = [record for batch in step["batches"] for record in batch]
            self.compare({**step, "variable": ()}, {"log": shown}, {"log": expected})

    def _await(self, step: Step) -> None:
        if "who" not in step:
            super()._await(step)
            return
        for _ in range(TRIES):
            found = self._beat(step["group"], step["who"]).assignment
            if sum(len(topic.partitions) for topic in found.topic_partitions) > 1:
                return
            self.harness.node.advance(50)
        raise AssertionError(step)

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


def _with_counts(value: Any) -> Any:
    """Lists of partitions as their lengths."""
    if isinstance(value, dict):
        return {name: len(one) if name == "partitions" else _with_counts(one) for name, one in value.items()}
    return [_with_counts(one) for one in value] if isinstance(value, list) else value


def _in_order(value: Any) -> Any:
    """Lists of members and groups in the order of the recordings."""
    if isinstance(value, dict):
        return {name: _in_order(one) for name, one in value.items()}
    if not isinstance(value, list):
        return value
    found = [_in_order(one) for one in value]
    for name in ("memberId", "groupId"):
        if found and all(isinstance(one, dict) and name in one for one in found):
            found.sort(key=lambda one: str(one[name]))
            break
    return found
