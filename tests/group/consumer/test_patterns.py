"""
Regular expressions of consumer groups: validation, resolution beside the event loop, records.

Source: KIP-848; Kafka GroupMetadataManager.maybeUpdateRegularExpressions, handleRegularExpressionsResult; what Apache Kafka
4.2.1 answered to raw frames.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from kohort.group.configs import GroupConfig
from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta
from kohort.model.limits import PATTERN_LENGTH_MAX, PATTERNS_OF_GROUP_MAX
from kohort.records.values import (
    ConsumerGroupCurrentMemberAssignment,
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadata,
    ConsumerGroupRegularExpression,
    ConsumerGroupRegularExpressionTombstone,
)
from kohort.wire import messages as m
from tests.group.consumer.members import Member, consumer_group, settle, state
from tests.group.harness import Coordinator, Topic

ALL = (0, 1, 2, 3)
GAP_MS = 10_001
"""The shortest time between two resolutions, and one millisecond."""


def subscriber(
    coordinator: Coordinator, member_id: str, pattern: str, topics: Sequence[str] | None = None, **options: Any
) -> Member:
    """A member with a pattern and, by default, no names."""
    return Member(coordinator, member_id, topics, subscribed_topic_regex=pattern, **options)


def create(coordinator: Coordinator, *names: str) -> None:
    """Create topics of four partitions, and tell the shard."""
    image = coordinator.image
    taken = len(image.by_name)
    topics = tuple(Topic(name, UUID(int=100 + taken + index), 4) for index, name in enumerate(names))
    image.by_name.update({topic.name: topic for topic in topics})
    image.version += 1
    coordinator.on_image(ImageDelta(created=topics))


def delete(coordinator: Coordinator, name: str) -> None:
    image = coordinator.image
    topic = image.by_name.pop(name)
    image.version += 1
    coordinator.on_image(ImageDelta(deleted=(topic,)))


def types(coordinator: Coordinator, since: int) -> list[type]:
    return [type(record) for record in coordinator.records(since)]


def resolved(coordinator: Coordinator) -> dict[str, frozenset[str]]:
    found = consumer_group(coordinator).subscriptions.resolved
    return {pattern: topics.topics for pattern, topics in found.items()}


def test_a_pattern_is_resolved_after_the_heartbeat_and_assigned_by_the_next_one() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*")
    answer = a.join()
    assert (answer.code, answer.member_epoch, a.owned) == (ErrorCode.NONE, 1, {})
    # The pattern matches no topic yet: the new group stays at its first epoch.
    assert types(coordinator, 0) == [
        ConsumerGroupMemberMetadata,
        ConsumerGroupCurrentMemberAssignment,
        # The resolution: a batch of its own, with the next group epoch.
        ConsumerGroupRegularExpression,
        ConsumerGroupMetadata,
    ]
    assert len(coordinator.log.batches) == 2
    assert state(coordinator) == "Assigning"
    assert a.beat().member_epoch == 2
    assert a.owned == {"orders": ALL}
    assert state(coordinator) == "Stable"


def test_the_record_of_a_resolution_has_sorted_topics_version_and_time() -> None:
    coordinator = Coordinator()
    coordinator.image.version = 7
    now_ms = coordinator.now_ms
    subscriber(coordinator, "a", ".*").join()
    (record,) = (record for record in coordinator.records() if isinstance(record, ConsumerGroupRegularExpression))
    assert record == ConsumerGroupRegularExpression("group", ".*", ("orders", "payments"), 7, now_ms)


def test_a_pattern_that_matches_no_topic_gets_a_record_and_no_epoch() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "none")
    a.join()
    assert types(coordinator, 0)[2:] == [ConsumerGroupRegularExpression]
    assert resolved(coordinator) == {"none": frozenset()}
    assert a.beat().member_epoch == 1


def test_a_member_that_changes_to_a_pattern_without_topics_leaves_its_partitions_to_the_others() -> None:
    """Kafka keeps the target of such a member, so that nobody reads its partitions until the group epoch rises again."""
    coordinator = Coordinator()
    a = Member(coordinator, "a", ["orders"])
    a.join()
    b = subscriber(coordinator, "b", "ord.*")
    b.join()
    settle(a, b)
    assert (len(a.owned["orders"]), len(b.owned["orders"])) == (2, 2)
    coordinator.advance(GAP_MS)
    b.beat(subscribed_topic_regex="none")
    assert b.owned == {}
    settle(a, b)
    assert (a.owned, b.owned, state(coordinator)) == ({"orders": ALL}, {}, "Stable")


def test_the_whole_name_has_to_match() -> None:
    coordinator = Coordinator()
    create(coordinator, "reorders", "orders-2")
    subscriber(coordinator, "a", "orders|pay").join()
    assert resolved(coordinator) == {"orders|pay": frozenset({"orders"})}


def test_internal_topics_match() -> None:
    coordinator = Coordinator()
    create(coordinator, "__consumer_offsets")
    subscriber(coordinator, "a", "_.*").join()
    assert resolved(coordinator) == {"_.*": frozenset({"__consumer_offsets"})}


def test_names_and_a_pattern_are_added_up() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "pay.*", topics=["orders"])
    a.join()
    assert a.owned == {"orders": ALL}
    settle(a)
    assert a.owned == {"orders": ALL, "payments": ALL}


def test_members_that_share_a_pattern_share_its_resolution() -> None:
    coordinator = Coordinator()
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "ord.*")
    a.join()
    settle(a)
    end = coordinator.end
    assert b.join().member_epoch == 3  # the pattern is resolved: the epoch rises at once
    assert ConsumerGroupRegularExpression not in types(coordinator, end)
    settle(a, b)
    assert (a.owned, b.owned) == ({"orders": (0, 1)}, {"orders": (2, 3)})


def test_a_new_pattern_is_resolved_10_s_after_the_last_resolution() -> None:
    coordinator = Coordinator()
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "pay.*")
    a.join()
    b.join()
    assert resolved(coordinator) == {"ord.*": frozenset({"orders"})}
    coordinator.advance(GAP_MS - 1)
    a.beat()
    assert set(resolved(coordinator)) == {"ord.*"}
    coordinator.advance(1)
    end = coordinator.end
    a.beat()
    # Every pattern is written anew; the epoch rises once.
    assert types(coordinator, end) == [
        ConsumerGroupRegularExpression,
        ConsumerGroupRegularExpression,
        ConsumerGroupMetadata,
    ]
    settle(a, b)
    assert (a.owned, b.owned) == ({"orders": ALL}, {"payments": ALL})


def test_a_member_that_changes_its_pattern_loses_its_partitions_until_the_new_one_is_resolved() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    settle(a)
    epoch, end = a.epoch, coordinator.end
    answer = a.beat(subscribed_topic_regex="pay.*")
    assert (answer.code, answer.member_epoch, a.owned) == (ErrorCode.NONE, epoch, {})
    assert types(coordinator, end) == [
        ConsumerGroupMemberMetadata,
        ConsumerGroupRegularExpressionTombstone,
        ConsumerGroupCurrentMemberAssignment,
    ]
    # The subscription shrank and the epoch did not rise: the previous epoch is the present one.
    (current,) = (
        record for record in coordinator.records(end) if isinstance(record, ConsumerGroupCurrentMemberAssignment)
    )
    assert (current.member_epoch, current.previous_member_epoch, current.state) == (epoch, epoch, 1)
    # No expression of the group is resolved any more, so the next heartbeat does not wait for the 10 s.
    assert resolved(coordinator) == {}
    a.beat()
    assert resolved(coordinator) == {"pay.*": frozenset({"payments"})}
    settle(a)
    assert (a.epoch, a.owned) == (epoch + 1, {"payments": ALL})


def test_a_member_that_gives_its_pattern_up_raises_the_epoch() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*", topics=["payments"])
    a.join()
    settle(a)
    epoch, end = a.epoch, coordinator.end
    a.beat(subscribed_topic_regex="")
    settle(a)
    assert (a.epoch, a.owned) == (epoch + 1, {"payments": ALL})
    assert types(coordinator, end)[:3] == [
        ConsumerGroupMemberMetadata,
        ConsumerGroupRegularExpressionTombstone,
        ConsumerGroupMetadata,
    ]


@pytest.mark.parametrize("is_resolved", [True, False])
def test_the_last_member_of_a_pattern_takes_it_along(is_resolved: bool) -> None:
    coordinator = Coordinator()
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "pay.*")
    a.join()
    b.join()
    if is_resolved:
        coordinator.advance(GAP_MS)
        settle(a, b)
    end = coordinator.end
    b.leave()
    tombstones = [
        record for record in coordinator.records(end) if isinstance(record, ConsumerGroupRegularExpressionTombstone)
    ]
    assert tombstones == [ConsumerGroupRegularExpressionTombstone("group", "pay.*")]
    assert types(coordinator, end)[-2:] == [ConsumerGroupRegularExpressionTombstone, ConsumerGroupMetadata]


def test_a_pattern_that_another_member_uses_stays() -> None:
    coordinator = Coordinator()
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "ord.*")
    a.join()
    b.join()
    end = coordinator.end
    b.leave()
    a.beat()
    assert ConsumerGroupRegularExpressionTombstone not in types(coordinator, end)


def test_a_pattern_stays_if_one_of_its_members_changes_to_another() -> None:
    coordinator = Coordinator()
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "ord.*")
    a.join()
    b.join()
    settle(a, b)
    end = coordinator.end
    b.beat(subscribed_topic_regex="pay.*")
    assert ConsumerGroupRegularExpressionTombstone not in types(coordinator, end)
    assert resolved(coordinator) == {"ord.*": frozenset({"orders"})}
    coordinator.advance(GAP_MS)
    settle(a, b)
    assert (a.owned, b.owned) == ({"orders": ALL}, {"payments": ALL})


def test_a_new_topic_is_found_at_the_first_heartbeat_10_s_after_the_last_resolution() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", ".*-eu")
    a.join()
    create(coordinator, "orders-eu")
    a.beat()
    assert resolved(coordinator) == {".*-eu": frozenset()}
    coordinator.advance(GAP_MS)
    a.beat()
    assert resolved(coordinator) == {".*-eu": frozenset({"orders-eu"})}
    settle(a)
    assert a.owned == {"orders-eu": ALL}


def test_without_new_topics_nothing_is_resolved_before_the_refresh_interval() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_regex_refresh_interval_ms=30_000))
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    settle(a)
    end = coordinator.end
    coordinator.advance(30_000)
    a.beat()
    assert coordinator.end == end
    coordinator.advance(1)
    a.beat()
    assert types(coordinator, end) == [ConsumerGroupRegularExpression]


def test_a_deleted_topic_stays_in_the_resolution_until_the_refresh() -> None:
    coordinator = Coordinator(GroupConfig(group_consumer_regex_refresh_interval_ms=30_000))
    a = subscriber(coordinator, "a", ".*")
    a.join()
    settle(a)
    delete(coordinator, "payments")
    del a.owned["payments"]
    settle(a)
    assert (a.epoch, a.owned) == (3, {"orders": ALL})
    assert resolved(coordinator) == {".*": frozenset({"orders", "payments"})}
    coordinator.advance(30_001)
    end = coordinator.end
    a.beat()
    # The set of topics changed although the metadata hash did not.
    assert types(coordinator, end) == [ConsumerGroupRegularExpression, ConsumerGroupMetadata]
    settle(a)
    assert a.epoch == 4


def test_a_topic_that_only_a_pattern_matches_reaches_the_group_when_it_changes() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    settle(a)
    grown = Topic("orders", coordinator.image.by_name["orders"].topic_id, 6)
    coordinator.image.by_name["orders"] = grown
    coordinator.image.version += 1
    coordinator.on_image(ImageDelta(changed=(grown,)))
    settle(a)
    assert a.owned == {"orders": (0, 1, 2, 3, 4, 5)}


def test_a_topic_that_only_a_pattern_matches_keeps_its_offsets() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    settle(a)
    assert consumer_group(coordinator).is_subscribed_to("orders")
    coordinator.restart()
    assert consumer_group(coordinator).is_subscribed_to("orders")


def test_one_resolution_runs_at_a_time() -> None:
    coordinator = Coordinator()
    coordinator.is_burst = True
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "pay.*")
    a.join()
    b.join()
    coordinator.node.settle()
    assert set(resolved(coordinator)) == {"ord.*"}


def test_a_result_is_dropped_if_its_pattern_is_no_longer_used() -> None:
    coordinator = Coordinator()
    coordinator.is_burst = True
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    a.epoch = 1
    a.beat(subscribed_topic_regex="pay.*")
    coordinator.node.settle()
    assert resolved(coordinator) == {}
    coordinator.is_burst = False
    a.beat()
    assert resolved(coordinator) == {"pay.*": frozenset({"payments"})}


def test_a_result_is_dropped_if_its_group_was_deleted() -> None:
    coordinator = Coordinator()
    coordinator.is_burst = True
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    a.leave()
    deleted = coordinator.send("delete_groups", m.DeleteGroupsRequest(groups_names=["group"]))
    coordinator.node.settle()
    assert deleted.results[0].error_code == ErrorCode.NONE
    assert ConsumerGroupRegularExpression not in types(coordinator, 0)


def test_a_restart_keeps_the_resolution_and_the_10_s() -> None:
    coordinator = Coordinator()
    a, b = subscriber(coordinator, "a", "ord.*"), subscriber(coordinator, "b", "pay.*")
    a.join()
    settle(a)
    coordinator.restart()
    assert resolved(coordinator) == {"ord.*": frozenset({"orders"})}
    b.join()
    settle(a, b)
    assert set(resolved(coordinator)) == {"ord.*"}
    coordinator.advance(GAP_MS)
    settle(a, b)
    assert b.owned == {"payments": ALL}


def test_a_topic_created_before_a_load_is_found_after_it() -> None:
    """The coordinator does not know when topics were created. The image of the load counts as one with new topics."""
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", ".*")
    a.join()
    a.beat()
    create(coordinator, "clicks")
    coordinator.restart()
    coordinator.advance(GAP_MS)
    a.beat()
    assert resolved(coordinator) == {".*": frozenset({"clicks", "orders", "payments"})}
    a.beat()
    assert a.owned == {"clicks": ALL, "orders": ALL, "payments": ALL}
    # Once is enough.
    end = coordinator.end
    coordinator.advance(GAP_MS)
    a.beat()
    assert coordinator.end == end


def test_a_resolution_that_cannot_be_written_is_tried_again_after_10_s() -> None:
    coordinator = Coordinator(batch_bytes_max=2_000)
    create(coordinator, *(f"{index:03}-{'x' * 100}" for index in range(30)))
    a = subscriber(coordinator, "a", ".*x")
    a.join()
    end = coordinator.end
    assert resolved(coordinator) == {}
    a.beat(subscribed_topic_regex="ord.*")
    assert (resolved(coordinator), coordinator.end) == ({}, end + 3)
    coordinator.advance(GAP_MS)
    a.beat()
    assert resolved(coordinator) == {"ord.*": frozenset({"orders"})}


@pytest.mark.parametrize("pattern", ["(", "a**", "(?=a)", r"\1"])
def test_an_invalid_pattern_changes_nothing(pattern: str) -> None:
    coordinator = Coordinator()
    answer = subscriber(coordinator, "a", pattern).join()
    assert answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (coordinator.records(), coordinator.listed()) == ([], {})


def test_a_member_with_an_invalid_new_pattern_keeps_the_old_one() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    settle(a)
    end = coordinator.end
    assert a.beat(subscribed_topic_regex="(").code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert coordinator.end == end
    assert settle(a) == 1
    assert a.owned == {"orders": ALL}


def test_a_group_has_a_bounded_number_of_patterns() -> None:
    coordinator = Coordinator()
    for index in range(PATTERNS_OF_GROUP_MAX):
        assert subscriber(coordinator, f"m{index}", f"p{index}").join().code is ErrorCode.NONE
    answer = subscriber(coordinator, "m", "orders").join()
    assert answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert str(PATTERNS_OF_GROUP_MAX) in answer.error_message
    assert subscriber(coordinator, "m", "p7").join().code is ErrorCode.NONE


@pytest.mark.parametrize(
    "pattern", ["a" * (PATTERN_LENGTH_MAX + 1), r"\pL" * 5, r"\pL{1000}", "(a{30}){30}" * 20, "\ud800"]
)
def test_a_pattern_has_a_bounded_cost(pattern: str) -> None:
    answer = subscriber(Coordinator(), "a", pattern).join()
    assert answer.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_full_heartbeat_of_a_resolved_group_writes_nothing() -> None:
    coordinator = Coordinator()
    a = subscriber(coordinator, "a", "ord.*")
    a.join()
    settle(a)
    end = coordinator.end
    coordinator.advance(GAP_MS)
    a.beat()
    a.beat(subscribed_topic_regex="ord.*")
    assert coordinator.end == end
