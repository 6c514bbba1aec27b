"""The history of one group replayed record by record, without Spark: groups that the coordinator assigns (KIP-848)."""

import json
from typing import Any

import pytest

from kohort.pipeline.tables.groups.group_history import GroupHistory

Row = dict[str, Any]

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
AWAY = -2
"""LEAVE_GROUP_STATIC_MEMBER_EPOCH: a static member left and may come back under its instance id."""


class Records:
    """Records of a consumer group, a second apart; each is replayed when it is written."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._history = GroupHistory("g", 0)
        self.at_ms = 0

    def write(self, what: str, value: Row | None, member_id: str | None = None, key: Row | None = None) -> None:
        self.at_ms += 1000
        record = {"kind": "coordinator", "record_type": f"ConsumerGroup{what}", "log_offset": self.at_ms // 1000}
        record |= {"timestamp_ms": self.at_ms, "tombstone": value is None, "value": json.dumps(value)}
        self.rows += self._history.replay(record | {"member_id": member_id, "key": json.dumps(key)})

    def member(self, member_id: str, *, instance_id: str | None = None, topic: str = "t") -> None:
        value = {"instanceId": instance_id, "clientId": member_id, "clientHost": "/h", "subscribedTopicNames": [topic]}
        self.write("MemberMetadata", value, member_id)

    def removed(self, member_id: str) -> None:
        self.write("MemberMetadata", None, member_id)

    def epoch(self, epoch: int, targets: dict[str, list[int]], *, metadata_hash: int = 7) -> None:
        """A new group epoch with its target assignment."""
        self.write("Metadata", {"epoch": epoch, "metadataHash": metadata_hash})
        self.target(epoch, targets)

    def target(self, epoch: int, targets: dict[str, list[int]], **computed: int) -> None:
        for member_id, partitions in targets.items():
            topics = [{"topicId": TOPIC_ID, "partitions": partitions}]
            self.write("TargetAssignmentMember", {"topicPartitions": topics}, member_id)
        self.write("TargetAssignmentMetadata", {"assignmentEpoch": epoch, **computed})

    def current(self, member_id: str, epoch: int, *, state: int = 0) -> None:
        self.write("CurrentMemberAssignment", {"memberEpoch": epoch, "state": state}, member_id)

    def finished(self) -> list[Row]:
        return [*self.rows, *self._history.finish()]


def told(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("event", "generation", "completed_at_ms", "duration_ms"))


def two_static_members() -> Records:
    """Both members hold their partitions in epoch 2."""
    records = Records()
    records.member("a", instance_id="A")
    records.epoch(1, {"a": [0, 1]})
    records.current("a", 1)
    records.member("b", instance_id="B")
    records.epoch(2, {"a": [0], "b": [1]})
    records.current("a", 2)
    records.current("b", 2)
    return records


def test_a_static_member_that_is_away_blocks_no_rebalance() -> None:
    """It stays a member at epoch -2, and takes no new assignment until it is back."""
    records = two_static_members()
    records.current("b", AWAY)
    records.member("c")
    began_ms = records.at_ms + 1000
    records.epoch(3, {"a": [0], "c": [2]})
    records.current("a", 3)
    records.current("c", 3)
    last = records.finished()[-1]
    assert told(last) == ("rebalanced", 3, records.at_ms, records.at_ms - began_ms)
    assert [one["member_id"] for one in last["members"]] == ["a", "b", "c"]


def test_a_rebalance_ends_when_the_last_member_is_stable() -> None:
    """Members in an older epoch, and members that revoke or wait for partitions, hold the rebalance open."""
    records = two_static_members()
    records.member("c")
    records.epoch(3, {"a": [0], "b": [1], "c": [2]})
    records.current("a", 3)
    records.current("c", 3)
    records.current("b", 2)
    records.current("c", 3, state=2)
    records.current("b", 3)
    records.current("c", 3)
    completed_ms = records.at_ms
    records.current("a", 3)
    assert told(records.finished()[-1])[2] == completed_ms


def test_a_rebalance_that_a_newer_epoch_overtook_never_ended() -> None:
    records = two_static_members()
    records.member("c")
    records.epoch(3, {"a": [0], "b": [1], "c": [2]})
    records.current("a", 3)
    records.removed("c")
    records.epoch(4, {"a": [0], "b": [1], "c": []})
    records.current("a", 4)
    records.current("b", 4)
    assert [(*told(row)[:2], row["why"], row["completed_at_ms"] is None) for row in records.finished()] == [
        ("rebalanced", 1, ["joined"], False),
        ("rebalanced", 2, ["joined"], False),
        ("rebalanced", 3, ["joined"], True),
        ("rebalanced", 4, ["left"], False),
    ]


def test_causes_of_a_rebalance() -> None:
    """A changed subscription, a replaced static member, and topics that changed while no member did."""
    records = two_static_members()
    records.member("a", instance_id="A", topic="other")
    records.epoch(3, {})
    records.removed("b")
    records.member("b2", instance_id="B")
    records.epoch(4, {})
    records.epoch(5, {}, metadata_hash=8)
    records.epoch(6, {}, metadata_hash=8)
    rows = records.finished()[2:]
    assert [(row["generation"], row["why"]) for row in rows] == [
        (3, ["subscription"]),
        (4, ["fenced"]),
        (5, ["metadata"]),
        (6, []),
    ]


def test_a_target_assignment_of_another_epoch_moves_nothing_yet() -> None:
    """A target assignment may lag behind the group epoch."""
    records = two_static_members()
    records.write("Metadata", {"epoch": 3, "metadataHash": 8})
    records.write("TargetAssignmentMetadata", {"assignmentEpoch": 2})
    assert [row["moved"] for row in records.finished()] == [0, 1, None]


def test_moved_counts_partitions_with_another_owner() -> None:
    """A partition without an owner before did not move; a static member is the same owner under a new member id."""
    records = two_static_members()
    records.removed("b")
    records.member("b2", instance_id="B")
    records.epoch(3, {"b": [], "b2": [1]})
    records.member("c")
    records.epoch(4, {"a": [], "c": [0, 2]})
    assert [row["moved"] for row in records.finished()] == [0, 1, 0, 1]


def test_the_last_phase_begins_when_the_assignment_is_computed() -> None:
    """Kafka 4.3 and later: the group waits for its assignment, whose record has the time."""
    records = two_static_members()
    records.member("c")
    records.write("Metadata", {"epoch": 3, "metadataHash": 7})
    began_ms = records.at_ms
    records.target(3, {"c": [2]}, assignmentTimestamp=began_ms + 2500)
    for member_id in ("a", "b", "c"):
        records.current(member_id, 3)
    last = records.finished()[-1]
    assert (last["began_at_ms"], last["completed_at_ms"] - last["sync_ms"]) == (began_ms, began_ms + 2500)
    assert last["duration_ms"] == records.at_ms - began_ms


def overtaken() -> Records:
    """Epoch 3 has an assignment that b has not taken; epoch 4 waits for one."""
    records = two_static_members()
    records.write("Metadata", {"epoch": 3, "metadataHash": 8})
    records.target(3, {}, assignmentTimestamp=records.at_ms)
    records.current("a", 3)
    records.write("Metadata", {"epoch": 4, "metadataHash": 9})
    return records


def test_members_take_an_assignment_while_the_next_epoch_waits() -> None:
    records = overtaken()
    records.current("b", 3)
    completed_ms = records.at_ms
    records.current("a", 3)
    records.target(4, {}, assignmentTimestamp=records.at_ms)
    records.current("a", 4)
    records.current("b", 4)
    third, fourth = records.finished()[2:]
    assert (third["generation"], third["completed_at_ms"]) == (3, completed_ms)
    assert (fourth["generation"], fourth["completed_at_ms"]) == (4, records.at_ms)
    assert third["completed_at_ms"] - third["sync_ms"] < fourth["began_at_ms"] < completed_ms


def test_several_epochs_may_wait_for_one_assignment() -> None:
    records = overtaken()
    records.write("Metadata", {"epoch": 5, "metadataHash": 10})
    records.current("b", 3)
    completed_ms = records.at_ms
    rows = sorted(records.finished()[2:], key=lambda row: int(row["generation"]))
    assert [(row["generation"], row["completed_at_ms"]) for row in rows] == [(3, completed_ms), (4, None), (5, None)]


def test_an_assignment_ends_that_which_it_overtakes() -> None:
    records = overtaken()
    records.target(4, {}, assignmentTimestamp=records.at_ms)
    records.current("b", 3)
    assert [row["completed_at_ms"] for row in records.finished()[2:]] == [None, None]


def test_a_group_that_loses_its_members_ends_what_was_overtaken() -> None:
    records = overtaken()
    for member_id in "ab":
        records.removed(member_id)
    records.write("Metadata", {"epoch": 5, "metadataHash": 9})
    rows = records.finished()[2:]
    assert sorted((row["generation"], row["event"], row["completed_at_ms"] is None) for row in rows) == [
        (3, "rebalanced", True), (4, "rebalanced", True), (5, "emptied", False),
    ]  # fmt: skip


def test_an_assignment_is_computed_before_the_records_of_its_step_are_written() -> None:
    records = two_static_members()
    records.write("Metadata", {"epoch": 3, "metadataHash": 8})
    records.target(3, {}, assignmentTimestamp=records.at_ms - 3)
    began_ms = records.at_ms - 1000 - 3
    records.current("a", 3)
    records.current("b", 3)
    last = records.finished()[-1]
    assert (last["began_at_ms"], last["duration_ms"]) == (began_ms, records.at_ms - began_ms)
    assert last["sync_ms"] == last["duration_ms"]


def test_an_assignment_that_was_computed_later_than_it_took_effect_tells_no_last_phase() -> None:
    """The clocks of two coordinators differ."""
    records = two_static_members()
    records.write("Metadata", {"epoch": 3, "metadataHash": 8})
    records.target(3, {}, assignmentTimestamp=records.at_ms + 60_000)
    records.current("a", 3)
    records.current("b", 3)
    assert records.finished()[-1]["sync_ms"] is None


def test_the_time_of_an_older_assignment_is_not_that_of_the_next_one() -> None:
    """Damage hides the next one."""
    records = two_static_members()
    records.write("Metadata", {"epoch": 3, "metadataHash": 8})
    records.target(3, {}, assignmentTimestamp=records.at_ms)
    records.write("Metadata", {"epoch": 4, "metadataHash": 9})
    records.current("a", 4)
    records.current("b", 4)
    rows = records.finished()
    assert rows[-1]["completed_at_ms"] == records.at_ms
    assert [row["sync_ms"] for row in rows] == [None] * 4


@pytest.mark.parametrize(("computed", "joined"), [({"assignmentTimestamp": 2000}, ["a"]), ({}, None)])
def test_the_first_epoch_of_newer_brokers_is_2(computed: dict[str, int], joined: list[str] | None) -> None:
    """Without a time of its assignment, epoch 2 follows an epoch that compaction has removed."""
    records = Records()
    records.member("a")
    records.write("Metadata", {"epoch": 2, "metadataHash": 7})
    records.target(2, {"a": [0, 1]}, **computed)
    records.current("a", 2)
    (row,) = records.finished()
    assert (row["joined"] and [one["member_id"] for one in row["joined"]]) == joined
    assert (row["why"], row["moved"]) == ((["joined"], 0) if joined else (None, None))


def test_a_later_epoch_whose_forerunners_are_gone_tells_no_cause() -> None:
    records = Records()
    records.member("a")
    records.write("Metadata", {"epoch": 3, "metadataHash": 7})
    records.target(3, {"a": [0, 1]}, assignmentTimestamp=2000)
    (row,) = records.finished()
    assert (row["joined"], row["why"], row["moved"]) == (None, None, None)


def subscribed_to(value: Row) -> Records:
    records = Records()
    records.member("a", topic="t")
    records.write("MemberMetadata", {"clientId": "b", "clientHost": "/h", **value}, "b")
    return records


# the subscription of a second member, beside that of topic t; the topics of the group
SUBSCRIPTIONS: list[tuple[Row, list[str] | None]] = [
    ({"subscribedTopicNames": ["u", "t"]}, ["t", "u"]),
    ({"subscribedTopicNames": []}, ["t"]),
    ({"subscribedTopicNames": [], "subscribedTopicRegex": ""}, ["t"]),
    ({"subscribedTopicNames": [], "subscribedTopicRegex": "x.*"}, None),  # not resolved yet
    ({"topologyEpoch": 1}, None),
]


@pytest.mark.parametrize(("value", "topics"), SUBSCRIPTIONS)
def test_what_members_subscribe_to(value: Row, topics: list[str] | None) -> None:
    records = subscribed_to(value)
    records.epoch(1, {})
    assert records.finished()[-1]["subscribed"] == topics


def test_the_topics_of_a_regular_expression_are_in_the_log() -> None:
    records = subscribed_to({"subscribedTopicRegex": "x.*"})
    key = {"groupId": "g", "regularExpression": "x.*"}
    records.write("RegularExpression", {"topics": ["x1", "x2"], "version": 1, "timestamp": 0}, key=key)
    records.epoch(1, {})
    records.write("RegularExpression", None, key=key)
    records.epoch(2, {})
    assert [row["subscribed"] for row in records.finished()] == [["t", "x1", "x2"], None]
