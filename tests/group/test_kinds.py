"""A second kind of groups beside classic groups: one entry in the table, and no other module knows it."""

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.events import GroupDeleted, OffsetsExpired
from kohort.group.groups import CLASSIC, CONSUMER, SHARE, STREAMS, TRANSITIONS, Transition, transition
from kohort.group.kinds import KINDS, record_serde
from kohort.model.errors import CoordinatorError, ErrorCode, UnavailableError, UnknownRecordTypeError
from kohort.model.ids import CONSUMER_OFFSETS
from kohort.records.serde import CoordinatorRecordSerde
from kohort.records.values import GroupMetadata, GroupMetadataTombstone, StreamsGroupMetadata
from kohort.wire import messages as m
from kohort.wire.generated.gradual import drain
from tests.group.harness import Answer, Coordinator
from tests.group.tiny_kind import TINY, TinyGroup, TinyManager, TinyRecord, TinySerde

MINUTE_MS = 60_000
CONFIG = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS)
ORDERS, PAYMENTS = ("orders", 0), ("payments", 0)


def coordinator(config: GroupConfig | None = None) -> Coordinator:
    return Coordinator(config, kinds=(*KINDS, TINY), serde=TinySerde())


def with_tiny(*members: str, config: GroupConfig | None = None) -> Coordinator:
    found = coordinator(config)
    set_members(found, *members)
    return found


def kind(found: Coordinator) -> str:
    return found.shard.groups["group"].kind


def set_members(found: Coordinator, *members: str) -> Answer:
    return found.ask("streams_group_heartbeat", TinyRecord("group", members), version=0)


def manager(found: Coordinator) -> TinyManager:
    tiny: object = found.shard.context.managers[STREAMS]
    assert isinstance(tiny, TinyManager)
    return tiny


def test_it_is_listed_with_its_type() -> None:
    found = with_tiny("a")
    found.commit(group="classic")

    def listed(**filters: list[str]) -> set[tuple[str, str, str, str]]:
        answer = found.ask("list_groups", m.ListGroupsRequest(**filters))
        return {(g.group_id, g.group_type, g.group_state, g.protocol_type) for g in answer.groups}

    tiny, classic = ("group", "streams", "Stable", "tiny"), ("classic", "classic", "Empty", "")
    assert listed() == {tiny, classic}
    assert listed(types_filter=["Streams"]) == listed(states_filter=["stable"]) == {tiny}
    assert listed(types_filter=["classic"]) == {classic}
    assert listed(types_filter=["consumer"]) == set()


def test_it_is_no_classic_group_to_describe() -> None:
    found = with_tiny("a")
    group = found.describe()
    assert (group.error_code, group.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group.error_message == "Group group is not a classic group."
    assert found.describe("none").error_message == "Group none not found."
    old = found.describe(version=5)
    assert (old.error_code, old.group_state, old.error_message) == (0, "Dead", None)


def test_its_offsets_are_committed_and_fetched_by_its_rules() -> None:
    found = with_tiny("a")
    assert found.commit({ORDERS: 5}, member_id="a", generation=3) == {ORDERS: ErrorCode.NONE}
    assert manager(found).committed == ["a"]
    assert found.commit(member_id="b", generation=3)[ORDERS] is ErrorCode.UNKNOWN_MEMBER_ID
    assert found.commit(member_id="a", generation=8)[ORDERS] is ErrorCode.STALE_MEMBER_EPOCH
    assert manager(found).committed == ["a"]
    assert found.fetch() == {ORDERS: 5}
    assert kind(found) == STREAMS
    topics = [m.OffsetFetchRequestTopics(name="orders", partition_indexes=[0])]
    wanted = m.OffsetFetchRequestGroup(group_id="group", member_id="b", member_epoch=1, topics=topics)
    for require_stable in (False, True):
        request = m.OffsetFetchRequest(groups=[wanted], require_stable=require_stable)
        (refused,) = found.ask("offset_fetch", request).groups
        assert (refused.error_code, refused.topics) == (ErrorCode.UNKNOWN_MEMBER_ID, ())


@pytest.mark.parametrize("api", ["sync", "heartbeat", "leave"])
def test_a_classic_member_is_unknown_in_it(api: str) -> None:
    found = with_tiny("a")
    code = {
        "sync": lambda: found.sync("a", 0).code,
        "heartbeat": lambda: found.heartbeat("a", 0),
        "leave": lambda: found.leave(("a", None))[0],
    }[api]()
    assert code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_cannot_join_it_while_it_has_members() -> None:
    found = with_tiny("a")
    end = found.end
    answer = found.join("x")
    assert (answer.code, answer.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert (found.end, kind(found) == STREAMS) == (end, True)


def test_an_empty_one_becomes_classic_when_a_classic_member_joins_and_keeps_its_offsets() -> None:
    found = with_tiny()
    found.commit({ORDERS: 5})
    assert found.join("unknown").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert kind(found) == STREAMS
    end = found.end
    found.new_member_id()
    first, second = found.records(end)
    assert str(first) == str(TinyRecord("group", None))
    assert isinstance(second, GroupMetadata)
    for _ in range(2):
        assert kind(found) == CLASSIC
        assert found.fetch() == {ORDERS: 5}
        assert found.listed() == {"group": "Empty"}
        found.restart()


def test_if_that_cannot_be_written_it_stays() -> None:
    found = with_tiny()
    found.log.fail_next_append = UnavailableError("offline")
    assert found.join("").code is ErrorCode.NOT_COORDINATOR
    assert kind(found) == STREAMS


def test_its_offsets_expire_and_then_it_is_deleted_when_it_is_empty() -> None:
    found = with_tiny("a", config=CONFIG)
    found.commit({ORDERS: 1, PAYMENTS: 2})
    found.advance(2 * MINUTE_MS)
    assert found.fetch() == {ORDERS: 1}, "a member reads orders"
    set_members(found)
    end = found.end
    found.advance(MINUTE_MS)
    assert found.fetch() == {}
    assert found.listed() == {}
    assert str(found.records(end)[-1]) == str(TinyRecord("group", None))
    assert found.events[-3:] == [
        OffsetsExpired("group", 1),
        OffsetsExpired("group", 1),
        GroupDeleted("group", 0, "expired"),
    ]


def test_it_is_deleted_by_its_rules() -> None:
    found = with_tiny("a")
    found.commit({ORDERS: 1})
    assert found.delete("group") == {"group": ErrorCode.NON_EMPTY_GROUP}
    request = m.OffsetDeleteRequest(
        group_id="group",
        topics=[
            m.OffsetDeleteRequestTopic(name="orders", partitions=[m.OffsetDeleteRequestPartition(partition_index=0)])
        ],
    )
    (topic,) = found.ask("offset_delete", request).topics
    assert topic.partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    set_members(found)
    assert found.delete("group") == {"group": ErrorCode.NONE}
    assert found.listed() == {}
    found.restart()
    assert found.listed() == {}


def test_its_manager_hears_of_load_and_unload() -> None:
    found = with_tiny("a")
    found.commit(group="classic")
    found.restart()
    assert manager(found).loaded == ["group"]
    waiting = set_members(found, "wait")
    assert waiting.is_parked
    found.restart()
    assert "NOT_COORDINATOR" in waiting.response


def test_a_commit_of_an_unknown_group_makes_a_classic_group() -> None:
    found = coordinator()
    found.commit({ORDERS: 1})
    assert kind(found) == CLASSIC


def test_gauges_count_it_apart() -> None:
    found = with_tiny("a", "b")
    found.commit(group="classic")
    gauges = drain(found.service.gauges_in_steps())
    assert gauges.groups == {(STREAMS, "Stable"): 1, (CLASSIC, "Empty"): 1}
    assert gauges.members == {STREAMS: 2, CLASSIC: 0}


# fmt: off
RULES = {  # the group is, the member is: an empty group, one with members
    (CLASSIC,  CONSUMER): (Transition.REPLACE,                    Transition.CONVERT),
    (CONSUMER, CLASSIC):  (Transition.REPLACE,                    Transition.SERVE),
    (STREAMS,  CLASSIC):  (Transition.REPLACE,                    ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (SHARE,    CLASSIC):  (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    (SHARE,    CONSUMER): (ErrorCode.GROUP_ID_NOT_FOUND,          ErrorCode.GROUP_ID_NOT_FOUND),
    (CONSUMER, SHARE):    (ErrorCode.GROUP_ID_NOT_FOUND,          ErrorCode.GROUP_ID_NOT_FOUND),
    (STREAMS,  CONSUMER): (ErrorCode.GROUP_ID_NOT_FOUND,          ErrorCode.GROUP_ID_NOT_FOUND),
}
# fmt: on


@pytest.mark.parametrize(("present", "joining"), RULES)
@pytest.mark.parametrize("has_members", [False, True])
def test_transitions(present: str, joining: str, has_members: bool) -> None:
    """Source: Kafka GroupMetadataManager.classicGroupJoin, getOrMaybeCreateConsumerGroup, getOrMaybeCreateShareGroup."""
    group = TinyGroup("group", ("a",) if has_members else ())
    group.kind = present
    rule = RULES[present, joining][has_members]
    if isinstance(rule, Transition):
        assert transition(group, joining) is rule
        return
    with pytest.raises(CoordinatorError) as refused:
        transition(group, joining)
    assert refused.value.code is rule
    if rule is ErrorCode.GROUP_ID_NOT_FOUND:
        assert refused.value.message == f"Group group is not a {joining} group."


def test_the_table_of_transitions_is_decided_above() -> None:
    assert set(TRANSITIONS) <= set(RULES)


def test_each_kind_replays_its_records_and_no_other() -> None:
    replayed = [record for kind in KINDS for record in kind.make_manager(coordinator().shard.context).replayers]
    assert len(replayed) == len(set(replayed)) == 2 * sum(len(kind.key_types) for kind in KINDS)
    assert replayed[:2] == [GroupMetadata, GroupMetadataTombstone]


def test_the_serde_knows_the_records_of_all_kinds() -> None:
    record = StreamsGroupMetadata("group", 3, 0)
    key, value = CoordinatorRecordSerde(CONSUMER_OFFSETS).encode(record)
    assert record_serde((*KINDS, TINY)).decode(key, value) == record
    with pytest.raises(UnknownRecordTypeError):
        record_serde().decode(key, value)
