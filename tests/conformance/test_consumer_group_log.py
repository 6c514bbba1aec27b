"""The records of consumer groups: identities get names, and what Kafka orders by a hash table gets a fixed order."""

from typing import Any
from uuid import UUID

from kohort.records import values
from kohort.records.serde import encode_record
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.conformance.brokers.coordinator_log import ScenarioRecords
from kohort_lab.conformance.brokers.offsets_log import OFFSETS_LOG
from kohort_lab.conformance.canon import Names

PREFIX = "kc-1-"
GROUP = f"{PREFIX}g"
ONE, TWO = UUID(int=1), UUID(int=2)
SHORT = "AAAAAAAAAAAAAAAAAAAAAQ"
"""The short form of a UUID."""


def canonical(*records: Any, names: Names | None = None) -> list[dict[str, Any]]:
    found = ScenarioRecords(OFFSETS_LOG, {PREFIX: {0: 99}})
    found.add(0, build_batch([BatchRecord(*encode_record(each)) for each in records], timestamp_ms=0))
    return found.of(names or Names(PREFIX))["@g"]


def target(member_id: str, *topics: UUID) -> values.ConsumerGroupTargetAssignmentMember:
    partitions = tuple(values.ConsumerGroupTargetAssignmentMemberTopicPartition(topic, (0,)) for topic in topics)
    return values.ConsumerGroupTargetAssignmentMember(GROUP, member_id, partitions)


def test_partitions_are_sorted() -> None:
    first, second = (
        values.ConsumerGroupTargetAssignmentMember(
            GROUP, "a", (values.ConsumerGroupTargetAssignmentMemberTopicPartition(ONE, numbers),)
        )
        for numbers in ((5, 2), (2, 5))
    )
    assert canonical(first) == canonical(second)


def leaving(member_id: str) -> tuple[Any, ...]:
    return (
        values.ConsumerGroupCurrentMemberAssignmentTombstone(GROUP, member_id),
        values.ConsumerGroupTargetAssignmentMemberTombstone(GROUP, member_id),
        values.ConsumerGroupMemberMetadataTombstone(GROUP, member_id),
    )


def test_neighbouring_targets_are_sorted_by_member_and_topic() -> None:
    names = Names(PREFIX)
    names.name("topic", ONE)
    names.name("topic", TWO)
    assert canonical(target("b", TWO, ONE), target("a"), names=names) == canonical(
        target("a"), target("b", ONE, TWO), names=names
    )


def test_another_kind_of_record_between_two_keeps_their_order() -> None:
    between = values.ConsumerGroupTargetAssignmentMetadata(GROUP, 1)
    assert canonical(target("b"), between, target("a")) != canonical(target("a"), between, target("b"))


def test_members_that_leave_together_are_sorted_and_the_order_within_each_counts() -> None:
    assert canonical(*leaving("b"), *leaving("a")) == canonical(*leaving("a"), *leaving("b"))
    assert canonical(*leaving("a")) != canonical(*reversed(leaving("a")))


def test_equal_hashes_have_one_name_and_no_hash_has_none() -> None:
    hashes = [
        record["metadata_hash"]
        for record in canonical(
            *(values.ConsumerGroupMetadata(GROUP, epoch, number) for epoch, number in ((1, 5), (2, 7), (3, 5), (4, 0)))
        )
    ]
    assert hashes == ["<hash 1>", "<hash 2>", "<hash 1>", 0]


def test_what_a_member_has_still_to_revoke_is_sorted_by_topic() -> None:
    names = Names(PREFIX)
    names.name("topic", ONE)
    names.name("topic", TWO)

    def current(*topics: UUID) -> values.ConsumerGroupCurrentMemberAssignment:
        pending = tuple(values.ConsumerGroupCurrentMemberAssignmentTopicPartitions(topic, (0,)) for topic in topics)
        return values.ConsumerGroupCurrentMemberAssignment(GROUP, "a", 2, 1, 1, (), pending)

    assert canonical(current(TWO, ONE), names=names) == canonical(current(ONE, TWO), names=names)


def expression(pattern: str, *topics: str, version: int = 1) -> values.ConsumerGroupRegularExpression:
    return values.ConsumerGroupRegularExpression(GROUP, pattern, topics, version, 0)


def test_regular_expressions_are_sorted_and_so_are_their_topics() -> None:
    assert canonical(expression("b.*"), expression("a.*", "y", "x")) == canonical(
        expression("a.*", "x", "y"), expression("b.*")
    )
    assert canonical(expression("a.*", "x")) != canonical(expression("a.*", "y"))


def test_the_version_of_a_resolution_does_not_count() -> None:
    assert canonical(expression("a.*", version=5)) == canonical(expression("a.*", version=70))


def test_the_short_id_of_a_member_is_an_identity() -> None:
    assert [record["member_id"] for record in canonical(target(SHORT), target("m"))] == ["<uuid 1>", "m"]
