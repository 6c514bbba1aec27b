"""Offsets of groups: commit, fetch, delete, and what transactions hold back."""

from collections.abc import Generator, Iterable, Sequence
from typing import Any
from uuid import UUID

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.context import HasContext
from kohort.group.offsets import maintenance
from kohort.group.offsets.deletion import TopicDeletion
from kohort.group.offsets.prepared_commits import RepeatedCommits
from kohort.group.offsets.scan import TOMBSTONES_AT_ONCE
from kohort.group.offsets.validation import check_fetch
from kohort.group.records import GroupRecord
from kohort.machine.bulk import LONG_RECORDS_STEP
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import RETRY_BACKOFF_MS, Result
from kohort.model.errors import ErrorCode, UnavailableError
from kohort.records.values import GroupMetadataTombstone, OffsetCommit, OffsetCommitTombstone
from kohort.testing import FixedContext
from kohort.testing.context import take_all
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from tests.conftest import LONG, watches_calls
from tests.group.harness import Coordinator, Image, Topic, subscription

NONE = ErrorCode.NONE
UNKNOWN_TOPIC = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ORDERS = ("orders", 0)
MARKER = {True: "commit", False: "abort"}


def fetch_named(coordinator: Coordinator, *, require_stable: bool = False) -> list[object]:
    topics = [m.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])]
    groups = [m.OffsetFetchRequestGroup(group_id="group", topics=topics)]
    request = m.OffsetFetchRequest(groups=groups, require_stable=require_stable)
    (found,) = coordinator.ask("offset_fetch", request).groups
    return [
        (entry.committed_offset, entry.committed_leader_epoch, entry.metadata, entry.error_code)
        for topic in found.topics
        for entry in topic.partitions
    ]


# OffsetCommit


def test_a_tool_may_commit_for_a_group_that_is_not_there() -> None:
    coordinator = Coordinator()
    assert coordinator.commit({ORDERS: 7}, metadata=None) == {ORDERS: NONE}
    topic_id = coordinator.image.by_name["orders"].topic_id
    assert coordinator.records() == [OffsetCommit("group", "orders", 0, 7, -1, "", coordinator.now_ms, -1, topic_id)]
    assert coordinator.fetch() == {ORDERS: 7}
    assert coordinator.listed() == {"group": "Empty"}
    assert coordinator.groups["group"].is_simple


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_not_there(version: int, code: ErrorCode) -> None:
    coordinator = Coordinator()
    assert coordinator.commit(generation=0, version=version) == {ORDERS: code}
    assert coordinator.records() == []


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ("x" * 9, NONE),
        ("x" * 10, NONE),
        ("x" * 11, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 10, NONE),  # characters of UTF-16 are counted, not bytes
        ("🙂" * 5, NONE),
        ("🙂" * 5 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_has_a_limit(metadata: str, code: ErrorCode) -> None:
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=10))
    assert coordinator.commit(metadata=metadata) == {ORDERS: code}
    assert coordinator.fetch() == ({ORDERS: 1} if code is NONE else {})


def test_one_partition_too_many_does_not_hinder_the_others() -> None:
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=1))
    request = m.OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        topics=[
            m.OffsetCommitRequestTopic(
                name="orders",
                partitions=[
                    m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="xx"),
                    m.OffsetCommitRequestPartition(partition_index=1, committed_offset=2, committed_metadata="x"),
                    m.OffsetCommitRequestPartition(partition_index=4, committed_offset=3, committed_metadata=""),
                ],
            ),
            m.OffsetCommitRequestTopic(
                name="gone", partitions=[m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
            ),
            m.OffsetCommitRequestTopic(
                name="orders",
                partitions=[m.OffsetCommitRequestPartition(partition_index=1, committed_offset=5)],
            ),
        ],
    )
    answer = coordinator.ask("offset_commit", request)
    assert [
        (topic.name, [(entry.partition_index, entry.error_code) for entry in topic.partitions])
        for topic in answer.topics
    ] == [("orders", [(4, UNKNOWN_TOPIC), (0, 12), (1, 0), (1, 0)]), ("gone", [(0, UNKNOWN_TOPIC)])]
    assert coordinator.fetch() == {("orders", 1): 5}  # the last of two wins


@pytest.mark.parametrize("offset", [-1, -5, 1 << 62])
def test_any_offset_is_taken(offset: int) -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: offset})
    assert coordinator.fetch() == {ORDERS: offset}


def test_a_commit_without_anything_to_commit_asks_no_group() -> None:
    coordinator = Coordinator()
    assert coordinator.commit({("gone", 0): 1}, generation=5) == {("gone", 0): UNKNOWN_TOPIC}
    answer = coordinator.ask("offset_commit", m.OffsetCommitRequest(group_id="group", topics=[]))
    assert list(answer.topics) == []
    # A topic that is not there is answered, even without partitions.
    topics = [m.OffsetCommitRequestTopic(name=name, partitions=[]) for name in ("orders", "gone")]
    answer = coordinator.ask("offset_commit", m.OffsetCommitRequest(group_id="group", topics=topics))
    assert [(topic.name, list(topic.partitions)) for topic in answer.topics] == [("gone", [])]


def test_topic_ids() -> None:
    coordinator = Coordinator()
    topic_id = coordinator.image.by_name["orders"].topic_id
    entries = [m.OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    request = m.OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        topics=[
            m.OffsetCommitRequestTopic(topic_id=topic_id, partitions=entries),
            m.OffsetCommitRequestTopic(topic_id=None, partitions=entries),
        ],
    )
    answer = coordinator.ask("offset_commit", request, version=10)
    assert [(topic.topic_id, topic.partitions[0].error_code) for topic in answer.topics] == [
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
        (topic_id, NONE),
    ]
    assert coordinator.shard.offsets.by_group["group"]["orders", 0].topic_id == topic_id

    # Made anew, the topic has another id, and the offset belongs to the old one.
    coordinator.service.image = image = Image(("another", "orders"))
    fetched = m.OffsetFetchRequestTopics(topic_id=image.by_name["orders"].topic_id, partition_indexes=[0])
    missing = m.OffsetFetchRequestTopics(topic_id=None, partition_indexes=[0])
    group = m.OffsetFetchRequestGroup(group_id="group", topics=[missing, fetched])
    (found,) = coordinator.ask("offset_fetch", m.OffsetFetchRequest(groups=[group]), version=10).groups
    assert [(topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in found.topics] == [
        (-1, NONE),
        (-1, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert fetch_named(coordinator)[0] == (7, -1, "", 0)

    # The next commit by name has the id that the name has now.
    coordinator.commit({ORDERS: 8})
    assert coordinator.shard.offsets.by_group["group"]["orders", 0].topic_id == image.by_name["orders"].topic_id


def test_a_fetch_by_topic_id_that_was_read_from_a_frame() -> None:
    """A decoded request is an object of another class than the request that a test builds."""
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 7})
    topic = m.OffsetFetchRequestTopics(topic_id=coordinator.image.by_name["orders"].topic_id, partition_indexes=[0])
    group = m.OffsetFetchRequestGroup(group_id="group", member_id="member", member_epoch=3, topics=[topic])
    frame = request_encoder(ApiKey.OFFSET_FETCH, 10)(1, "client", m.OffsetFetchRequest(groups=[group]))[4:]
    request = request_reader(ApiKey.OFFSET_FETCH, 10)(frame, read_request_header(frame)[-1])
    checked = check_fetch(request.groups[0], FixedContext(10), coordinator.image)
    assert (checked.request.member_id, checked.request.member_epoch) == ("member", 3)
    assert [found.name for found in checked.request.topics or ()] == ["orders"]


def test_a_fetch_by_topic_id_after_a_restart() -> None:
    """The id of a loaded offset is equal to that of the topic, and another object."""
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 7})
    coordinator.restart()
    topic = m.OffsetFetchRequestTopics(topic_id=coordinator.image.by_name["orders"].topic_id, partition_indexes=[0])
    group = m.OffsetFetchRequestGroup(group_id="group", topics=[topic])
    (found,) = coordinator.ask("offset_fetch", m.OffsetFetchRequest(groups=[group]), version=10).groups
    assert found.topics[0].partitions[0].committed_offset == 7


def test_a_commit_that_cannot_be_written_changes_nothing() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1})
    coordinator.log.fail_next_append = UnavailableError("offline")
    assert coordinator.commit({ORDERS: 2, ("payments", 1): 1}) == {
        ORDERS: ErrorCode.NOT_COORDINATOR,
        ("payments", 1): ErrorCode.NOT_COORDINATOR,
    }
    assert coordinator.fetch() == {ORDERS: 1}
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.commit(group="new")
    assert coordinator.listed() == {"group": "Empty"}


@pytest.mark.parametrize("partition", [-1, 4, 1 << 30])
@pytest.mark.parametrize("beside", [{}, {("orders", 3): 5}])
def test_partitions_that_do_not_exist_are_refused(partition: int, beside: dict[tuple[str, int], int]) -> None:
    """The image has four partitions of each topic. Source: KafkaApis.handleOffsetCommitRequest."""
    coordinator = Coordinator()
    for topic in ("orders", "missing"):
        codes = coordinator.commit({(topic, partition): 1} | beside)
        assert codes == {(topic, partition): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} | dict.fromkeys(beside, NONE)
    assert coordinator.fetch() == beside


def test_a_write_that_takes_too_long() -> None:
    coordinator = Coordinator()
    coordinator.log.is_held = True
    answer = coordinator.send("offset_commit", _commit_request())
    coordinator.advance(4_999)
    assert answer.is_parked
    coordinator.advance(1)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    topics = [m.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    group = m.OffsetFetchRequestGroup(group_id="group", topics=topics)
    stable = coordinator.send("offset_fetch", m.OffsetFetchRequest(groups=[group], require_stable=True))
    coordinator.advance(5_000)
    assert stable.groups[0].error_code == ErrorCode.NOT_COORDINATOR


def _commit_request(offset: int = 2) -> m.OffsetCommitRequest:
    entry = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [m.OffsetCommitRequestTopic(name="orders", partitions=[entry])]
    return m.OffsetCommitRequest(group_id="group", generation_id_or_member_epoch=-1, topics=topics)


def test_what_is_not_committed_is_not_fetched() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1})
    coordinator.log.is_held = True
    coordinator.send("offset_commit", _commit_request())
    coordinator.node.settle()
    assert coordinator.fetch() == {ORDERS: 1}
    assert fetch_named(coordinator)[0] == (1, -1, "", 0)
    coordinator.log.commit()
    assert coordinator.fetch() == {ORDERS: 2}


# OffsetFetch


def test_a_group_or_partition_without_offsets_is_no_error() -> None:
    coordinator = Coordinator()
    nothing = (-1, -1, "", 0)
    assert fetch_named(coordinator) == [nothing, nothing]
    assert coordinator.fetch() == {}
    coordinator.commit({ORDERS: 3}, metadata="m")
    assert fetch_named(coordinator) == [(3, -1, "m", 0), nothing]


@pytest.mark.parametrize("version", range(1, 8))
def test_up_to_version_7_one_group_is_asked_about(version: int) -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 3})
    topics = [m.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])]
    answer = coordinator.ask("offset_fetch", m.OffsetFetchRequest(group_id="group", topics=topics), version=version)
    assert (answer.error_code, answer.groups) == (0, ())
    assert [(topic.name, topic.partitions[0].committed_offset) for topic in answer.topics] == [("orders", 3)]
    coordinator.runtime.close()
    refused = coordinator.ask("offset_fetch", m.OffsetFetchRequest(group_id="group", topics=topics), version=version)
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    codes = [entry.error_code for topic in refused.topics for entry in topic.partitions]
    assert codes == ([ErrorCode.NOT_COORDINATOR] if version == 1 else [])


def test_several_groups_are_answered_in_order() -> None:
    coordinator = Coordinator()
    for group in ("a", "b", "c"):
        coordinator.commit({ORDERS: ord(group)}, group=group)
    asked = [m.OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("c", "x", "a", "c")]
    for require_stable in (False, True):
        request = m.OffsetFetchRequest(groups=asked, require_stable=require_stable)
        answer = coordinator.ask("offset_fetch", request)
        assert [
            (group.group_id, [entry.committed_offset for topic in group.topics for entry in topic.partitions])
            for group in answer.groups
        ] == [("c", [ord("c")]), ("x", []), ("a", [ord("a")]), ("c", [ord("c")])]


# OffsetDelete, DeleteGroups, deleted topics


def offset_delete(coordinator: Coordinator, *topics: tuple[str, list[int]], group: str = "group") -> object:
    asked = [
        m.OffsetDeleteRequestTopic(
            name=name, partitions=[m.OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
        )
        for name, partitions in topics
    ]
    answer = coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id=group, topics=asked))
    if answer.error_code:
        return answer.code
    return {
        (topic.name, entry.partition_index): ErrorCode(entry.error_code)
        for topic in answer.topics
        for entry in topic.partitions
    }


def test_offset_delete() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1, ("payments", 1): 1})
    end = coordinator.end
    assert offset_delete(coordinator, ("orders", [0, 1, 9]), ("gone", [0])) == {
        ORDERS: NONE,
        ("orders", 1): NONE,
        ("orders", 9): UNKNOWN_TOPIC,
        ("gone", 0): UNKNOWN_TOPIC,
    }
    assert coordinator.records(end) == [OffsetCommitTombstone("group", "orders", 0)]
    assert coordinator.fetch() == {("payments", 1): 1}
    assert offset_delete(coordinator, ("gone", [0]), group="nobody") is ErrorCode.GROUP_ID_NOT_FOUND
    assert offset_delete(coordinator, ("gone", [0]), group="") is ErrorCode.INVALID_GROUP_ID


def test_a_topic_that_is_read_keeps_its_offsets() -> None:
    coordinator = Coordinator()
    coordinator.stable(1, protocols=(("range", subscription("orders")),))
    coordinator.stable(1, group="unreadable", protocols=(("range", b"\0"),))
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert offset_delete(coordinator, ("orders", [0]), ("payments", [0])) == {ORDERS: subscribed, ("payments", 0): NONE}
    assert offset_delete(coordinator, ("payments", [0]), group="unreadable") == {("payments", 0): subscribed}


@pytest.mark.parametrize("cut_bytes", [1, 2, 4, 5, 20], ids=lambda size: f"without-{size}-bytes")
def test_a_subscription_without_its_user_data_is_one_to_every_topic(cut_bytes: int) -> None:
    """The user data is the last field, with a length of four bytes. Source: a 4.2.1."""
    coordinator = Coordinator()
    coordinator.stable(1, protocols=(("range", subscription("orders")[:-cut_bytes]),))
    subscribed = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    answer = {ORDERS: subscribed, ("payments", 0): subscribed}
    assert offset_delete(coordinator, ("orders", [0]), ("payments", [0])) == answer
    coordinator.restart()
    assert offset_delete(coordinator, ("orders", [0]), ("payments", [0])) == answer


def test_a_group_goes_with_all_it_has() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1})
    coordinator.shard.replay(100, 7, 0, OffsetCommit("group", "payments", 0, 5, -1, "", 0))
    end = coordinator.end
    assert coordinator.delete("group", "nobody", "group") == {"group": NONE, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}
    assert coordinator.records(end) == [
        OffsetCommitTombstone("group", "orders", 0),
        OffsetCommitTombstone("group", "payments", 0),
        GroupMetadataTombstone("group"),
    ]
    coordinator.shard.replay_end_transaction_marker(7, 0, committed=True)
    assert coordinator.listed() == {}
    assert coordinator.fetch() == {}
    assert not coordinator.shard.offsets.pending


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1, ("payments", 0): 2})
    coordinator.commit({ORDERS: 3}, group="another")
    coordinator.shard.replay(100, 7, 0, OffsetCommit("third", "orders", 2, 5, -1, "", 0))
    coordinator.delete_topics("orders")
    coordinator.advance(1)
    assert coordinator.fetch() == {("payments", 0): 2}
    assert coordinator.fetch("another") == {}
    assert not coordinator.shard.offsets.writers


def test_a_deleted_topic_is_not_forgotten_when_the_log_fails() -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1})
    coordinator.log.fail_next_append = UnavailableError("offline")
    coordinator.delete_topics("orders")
    coordinator.advance(1)
    assert coordinator.fetch() == {ORDERS: 1}
    coordinator.delete_topics("another")
    coordinator.advance(RETRY_BACKOFF_MS)
    assert coordinator.fetch() == {}
    # Done with: a topic of that name that was made since keeps its offsets.
    coordinator.commit({ORDERS: 2})
    coordinator.delete_topics("another")
    coordinator.advance(1)
    assert coordinator.fetch() == {ORDERS: 2}


def many_offsets(coordinator: Coordinator, count: int, *, groups: int = 1) -> None:
    """So many offsets in `orders`, and one elsewhere."""
    coordinator.image.by_name["orders"] = Topic("orders", UUID(int=1), count)
    for group in range(groups):
        places = range(group * count // groups, (group + 1) * count // groups)
        for low in range(places.start, places.stop, 1_000):
            high = min(low + 1_000, places.stop)
            coordinator.commit({("orders", index): 1 for index in range(low, high)}, group=f"group-{group}")
    coordinator.commit({("payments", 0): 2}, group="group-0")


@watches_calls
@pytest.mark.parametrize(("count", "groups"), [(100_000 if LONG else 20_000, 1), (10_000, 100), (2_000, 2_000)])
def test_many_offsets_of_a_deleted_topic_go_in_parts_that_others_can_come_between(
    count: int, groups: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic read by many groups, or by one with many partitions: not one operation of a second, nor one that fails whole."""
    coordinator = Coordinator(batch_bytes_max=100_000)
    many_offsets(coordinator, count, groups=groups)
    written: list[int] = []
    delete_part = maintenance.delete_part

    def watched(shard: HasContext, now_ms: int, deletion: TopicDeletion) -> Result[GroupRecord, None]:
        result = delete_part(shard, now_ms, deletion)
        written.append(len(result.records))
        return result

    monkeypatch.setattr(maintenance, "delete_part", watched)
    end, log_end = len(coordinator.log.batches), coordinator.end
    coordinator.delete_topics("orders")
    coordinator.advance(1)
    assert coordinator.fetch("group-0") == {("payments", 0): 2}
    assert sum(written) == count == coordinator.end - log_end
    assert max(written) <= 2 * TOMBSTONES_AT_ONCE
    assert max(len(batch) for batch in coordinator.log.batches[end:]) <= 100_000
    coordinator.restart()
    assert coordinator.fetch("group-0") == {("payments", 0): 2}


def test_a_part_of_which_a_batch_is_written_and_one_is_not_goes_on() -> None:
    coordinator = Coordinator(batch_bytes_max=1_000)
    many_offsets(coordinator, 40, groups=4)
    coordinator.log.fail_next_append, coordinator.log.appends_until_failure = UnavailableError("offline"), 1
    coordinator.delete_topics("orders")
    coordinator.advance(1)
    groups = [f"group-{number}" for number in range(4)]
    assert 1 < sum(len(coordinator.fetch(group)) for group in groups) < 41
    coordinator.advance(RETRY_BACKOFF_MS)
    assert [coordinator.fetch(group) for group in groups] == [{("payments", 0): 2}, {}, {}, {}]
    coordinator.delete_topics("payments")
    coordinator.advance(1)
    assert coordinator.fetch("group-0") == {}


def made_anew(coordinator: Coordinator) -> None:
    """The topic `orders` has another id."""
    former = coordinator.image.by_name["orders"]
    coordinator.image.by_name["orders"] = Topic("orders", UUID(int=former.topic_id.int + 100), former.partition_count)


def test_what_is_committed_in_a_topic_made_anew_stays_while_the_old_offsets_go() -> None:
    coordinator = Coordinator()
    many_offsets(coordinator, 2 * TOMBSTONES_AT_ONCE)
    new = {("orders", 0): 7, ("orders", 2 * TOMBSTONES_AT_ONCE - 1): 8}
    coordinator.delete_topics("orders")
    made_anew(coordinator)
    coordinator.commit(new, group="group-0")
    topic_id = coordinator.image.by_name["orders"].topic_id
    coordinator.shard.replay(coordinator.end, 7, 0, OffsetCommit("group-0", "orders", 5, 9, -1, "", 0, -1, topic_id))
    coordinator.advance(1)
    assert coordinator.fetch("group-0") == {("payments", 0): 2, ("orders", 5): 1} | new
    coordinator.shard.replay_end_transaction_marker(7, 0, committed=True)
    found = {partition: offset.offset for partition, offset in coordinator.shard.offsets.by_group["group-0"].items()}
    assert found == {("payments", 0): 2, ("orders", 5): 9} | new


def test_a_loaded_shard_knows_what_was_committed_before_a_topic_went() -> None:
    coordinator = Coordinator()
    many_offsets(coordinator, 10)
    coordinator.restart()
    coordinator.delete_topics("orders")
    coordinator.advance(1)
    assert coordinator.fetch("group-0") == {("payments", 0): 2}


def test_topics_that_go_while_others_go_come_when_those_are_done() -> None:
    coordinator = Coordinator()
    many_offsets(coordinator, 3 * TOMBSTONES_AT_ONCE)
    coordinator.delete_topics("orders")
    coordinator.node.settle()
    coordinator.delete_topics("payments")
    coordinator.advance(1)
    assert coordinator.fetch("group-0") == {}
    coordinator.commit({("payments", 0): 3}, group="group-0")
    coordinator.delete_topics("another")
    coordinator.advance(1)
    assert coordinator.fetch("group-0") == {("payments", 0): 3}


@watches_calls
def test_a_part_that_is_written_late_is_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried again whenever its time was up; all of them are committed then, and other topics wait."""
    coordinator = Coordinator()
    many_offsets(coordinator, 3 * TOMBSTONES_AT_ONCE)
    followed: list[TopicDeletion | None] = []
    continue_deletion = maintenance.continue_deletion

    def watched(shard: HasContext, now_ms: int, rest: TopicDeletion | None) -> Result[GroupRecord, None]:
        followed.append(rest)
        return continue_deletion(shard, now_ms, rest)

    monkeypatch.setattr(maintenance, "continue_deletion", watched)
    coordinator.log.is_held = True
    coordinator.delete_topics("orders")
    coordinator.advance(20_000)
    coordinator.delete_topics("payments")
    coordinator.log.is_held = False
    coordinator.log.commit()
    coordinator.advance(1_000)
    assert coordinator.fetch("group-0") == {}
    orders = [deletion for deletion in followed if deletion is not None and "orders" in deletion.topics]
    assert [deletion.scan and deletion.scan.next_partition for deletion in orders] == [
        TOMBSTONES_AT_ONCE * part for part in (1, 2, 3)
    ]


# Transactions


def pending(coordinator: Coordinator, offset: int, *, at: int, producer_id: int = 7, partition: int = 0) -> None:
    record = OffsetCommit("group", "orders", partition, offset, -1, "", 0)
    coordinator.shard.replay(at, producer_id, 0, record)


@pytest.mark.parametrize("committed", [True, False])
def test_pending_offsets_wait_for_the_marker(committed: bool) -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1})
    pending(coordinator, 2, at=50)
    pending(coordinator, 9, at=51, partition=1)
    assert coordinator.fetch() == {ORDERS: 1}  # what is only pending is not shown
    assert coordinator.fetch(require_stable=True) == {ORDERS: -2}
    unstable = (-1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    assert fetch_named(coordinator, require_stable=True) == [unstable, unstable]
    coordinator.shard.replay_end_transaction_marker(7, 0, committed=committed)
    assert coordinator.fetch(require_stable=True) == ({ORDERS: 2, ("orders", 1): 9} if committed else {ORDERS: 1})


def test_of_two_producers_the_later_record_wins() -> None:
    coordinator = Coordinator()
    pending(coordinator, 10, at=50, producer_id=1)
    pending(coordinator, 20, at=51, producer_id=2)
    coordinator.shard.replay_end_transaction_marker(2, 0, committed=True)
    assert coordinator.fetch(require_stable=True) == {ORDERS: -2}
    coordinator.shard.replay_end_transaction_marker(1, 0, committed=True)
    assert coordinator.fetch(require_stable=True) == {ORDERS: 20}


def test_a_plain_commit_after_a_transactional_one_stays() -> None:
    coordinator = Coordinator()
    pending(coordinator, 10, at=50)
    coordinator.shard.replay(51, -1, -1, OffsetCommit("group", "orders", 0, 11, -1, "", 0))
    coordinator.shard.replay_end_transaction_marker(7, 0, committed=True)
    assert coordinator.shard.offsets.by_group["group"]["orders", 0].offset == 11


def test_a_marker_of_a_stranger_does_nothing() -> None:
    coordinator = Coordinator()
    pending(coordinator, 10, at=50)
    coordinator.shard.replay_end_transaction_marker(8, 0, committed=True)
    assert list(coordinator.shard.offsets.pending) == [7]


def test_a_tombstone_drops_what_is_pending() -> None:
    coordinator = Coordinator()
    pending(coordinator, 10, at=50, producer_id=1)
    pending(coordinator, 11, at=51, producer_id=2)
    coordinator.shard.replay(52, -1, -1, OffsetCommitTombstone("group", "orders", 0))
    for producer_id in (1, 2):
        coordinator.shard.replay_end_transaction_marker(producer_id, 0, committed=True)
    assert not coordinator.shard.offsets.by_group
    assert not coordinator.shard.offsets.writers


def steps_of(coordinator: Coordinator, request: m.OffsetCommitRequest, version: int) -> Generator[Any, None, Any]:
    """The steps in which a long commit is handled."""
    handler = coordinator.service.handlers()[ApiKey.OFFSET_COMMIT]
    assert isinstance(handler, RepeatedCommits)
    return handler.in_steps(request, FixedContext(version, "client", "/127.0.0.1"), lambda _: None)


def commit_of(topics: Iterable[tuple[str, UUID | None, Sequence[int]]]) -> m.OffsetCommitRequest:
    return m.OffsetCommitRequest(
        group_id="group",
        generation_id_or_member_epoch=-1,
        topics=[
            m.OffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[
                    m.OffsetCommitRequestPartition(partition_index=index, committed_offset=number)
                    for index in partitions
                ],
            )
            for number, (name, topic_id, partitions) in enumerate(topics)
        ],
    )


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("is_active", [True, False])
@pytest.mark.parametrize(
    "topics",
    [
        [("orders", (0, 1))],
        [("orders", (0, 4, 1)), ("none", (0,)), ("payments", ()), ("orders", (2, -1, 0)), ("none", (1,)), ("orders", (9,))],
        [("none", (0, 1)), ("orders", (7,))],
        [("orders", ())],
        [],
    ],
)  # fmt: skip
def test_a_long_commit_is_answered_as_a_short_one(
    topics: list[tuple[str, Sequence[int]]], version: int, is_active: bool
) -> None:
    found = []
    for is_long in (False, True):
        coordinator = Coordinator()
        coordinator.service.is_active = is_active
        ids = {name: topic.topic_id for name, topic in coordinator.image.by_name.items()} | {"none": UUID(int=99)}
        request = commit_of((name if version < 10 else "", ids[name], indexes) for name, indexes in topics)
        answers: list[m.OffsetCommitResponse] = []
        if is_long:
            take_all(steps_of(coordinator, request, version), answers.append)
            coordinator.node.settle()
        else:
            answers.append(coordinator.ask("offset_commit", request, version=version).response)
        found.append((answers, coordinator.records()))
    assert found[0] == found[1]


def test_a_long_commit_takes_effect_as_a_whole() -> None:
    coordinator = Coordinator()
    coordinator.service.image = coordinator.image = Image(f"t{number}" for number in range(3 * HANDLER_STEP))
    request = commit_of((name, None, [0]) for name in coordinator.image.by_name)
    steps = steps_of(coordinator, request, 9)
    wait = next(step for step in steps if step is not None)
    assert "group" not in coordinator.shard.offsets.by_group, "the records are replayed in later turns"
    resumed: list[None] = []
    wait(lambda: resumed.append(None))
    coordinator.is_burst = True
    found = []
    while not resumed and coordinator.node.run_later_turn():
        found.append(len(coordinator.fetch()))
    assert found[:-1] == [0] * (len(found) - 1), "no query sees a part of the offsets"
    assert len(found) >= 2 * 3 * HANDLER_STEP // LONG_RECORDS_STEP
    assert len(coordinator.fetch()) == 3 * HANDLER_STEP
    assert coordinator.log.appends == 1
    answers: list[m.OffsetCommitResponse] = []
    for _ in range(6):
        assert next(steps) is None
    take_all(steps, answers.append)
    assert [topic.partitions[0].error_code for topic in answers[0].topics] == [NONE] * (3 * HANDLER_STEP)


def test_a_topic_that_is_deleted_while_a_long_commit_is_checked() -> None:
    coordinator = Coordinator()
    names = [f"t{number}" for number in range(2 * HANDLER_STEP)]
    coordinator.service.image = coordinator.image = image = Image(names)
    steps = steps_of(coordinator, commit_of((name, None, [0]) for name in names), 9)
    next(steps)
    del image.by_name["t0"]
    image.version += 1
    answers: list[m.OffsetCommitResponse] = []
    take_all(steps, answers.append)
    coordinator.node.settle()
    codes = {topic.name: topic.partitions[0].error_code for topic in answers[0].topics}
    assert codes == dict.fromkeys(names, NONE) | {"t0": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ("t0", 0) not in coordinator.shard.offsets.by_group["group"]
