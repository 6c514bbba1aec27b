"""The records that a scenario's groups leave, and records that cannot be read."""

from kohort.records.serde import encode_record
from kohort.records.values import (
    ConsumerGroupMemberMetadata,
    ConsumerGroupMetadataTombstone,
    GroupMetadataTombstone,
    OffsetCommit,
)
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.conformance.brokers.coordinator_log import UNREADABLE, ScenarioRecords
from kohort_lab.conformance.brokers.offsets_log import OFFSETS_LOG
from kohort_lab.conformance.canon import Names
from kohort_lab.conformance.compare import compare
from kohort_lab.conformance.outcome import Outcome
from kohort_lab.conformance.scenarios.scenario import Scenario

PREFIX, LATER = "kc-1-", "kc-2-"
UNKNOWN = BatchRecord(b"\x00\x63group", b"\x00\x00")
DAMAGED = BatchRecord(b"\x00\x01\x00\x09", b"\x00\x04")


def collected(*records: object, ends: dict[str, dict[int, int]] | None = None) -> ScenarioRecords:
    found = ScenarioRecords(OFFSETS_LOG, ends or {PREFIX: {0: 9}})
    pairs = [each if isinstance(each, BatchRecord) else BatchRecord(*encode_record(each)) for each in records]
    found.add(0, build_batch(pairs, timestamp_ms=0))
    return found


def commit(group_id: str) -> OffsetCommit:
    return OffsetCommit(group_id, "orders", 0, 5, -1, "", 1_700_000_000_000)


def test_records_are_listed_by_group_up_to_the_end_of_the_scenario() -> None:
    names = Names(PREFIX)
    records = collected(
        commit(f"{PREFIX}g"), commit(f"{LATER}g"), GroupMetadataTombstone(f"{PREFIX}g"), commit(f"{PREFIX}late"),
        ends={PREFIX: {0: 3}},
    ).of(names)  # fmt: skip
    assert {group: [each["record"] for each in listed] for group, listed in records.items()} == {
        "@g": ["offset", "group tombstone"]
    }


def test_records_of_every_kind_of_group_are_listed() -> None:
    member = ConsumerGroupMemberMetadata(
        f"{PREFIX}g", "m", None, None, "client", "/host", (f"{PREFIX}topic",), "", 5, None, classic_member_metadata=None
    )
    records = collected(member, ConsumerGroupMetadataTombstone(f"{PREFIX}g")).of(Names(PREFIX))
    assert [each["record"] for each in records["@g"]] == [
        "ConsumerGroupMemberMetadata",
        "ConsumerGroupMetadataTombstone",
    ]
    assert records["@g"][0]["subscribed_topic_names"] == ["@topic"]


def test_an_unreadable_record_is_an_error_of_each_scenario_that_it_may_belong_to() -> None:
    ends = {PREFIX: {0: 2}, LATER: {0: 1}, "kc-3-": {1: 9}}
    found = collected(commit(f"{PREFIX}g"), UNKNOWN, DAMAGED, ends=ends)
    assert found.of(Names(PREFIX))[UNREADABLE] == [{"record": "partition 0, offset 1: unknown record type 99"}]
    assert UNREADABLE not in found.of(Names(LATER))
    assert UNREADABLE not in found.of(Names("kc-3-"))
    (text,) = (each["record"] for each in collected(DAMAGED).of(Names(PREFIX))[UNREADABLE])
    assert text.startswith("partition 0, offset 0: malformed OffsetCommit record")


def test_an_unreadable_record_fails_a_scenario_even_if_both_brokers_wrote_it() -> None:
    scenario = Scenario(name="test/0", about="x", steps=(), topics={}, versions={}, values={})
    records = collected(UNKNOWN).of(Names(PREFIX))
    both, ours = Outcome(records=records), compare(scenario, Outcome(records=records), Outcome())
    assert [each.field for each in ours.differences] == [UNREADABLE]
    same = compare(scenario, both, both)
    assert [each.field for each in same.differences] == [UNREADABLE]
    assert not same.differences[0].reason
