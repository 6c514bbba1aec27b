"""Offsets in transactions, from TxnOffsetCommit to the marker. For error codes see `tests.tables.test_txn_offset_commits`."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.group.configs import GroupConfig
from kohort.group.offsets import transactional_commit
from kohort.group.offsets.offsets import Offsets
from kohort.group.records import GroupRecordSerde
from kohort.machine.shard import Producer
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import CoordinatorError, ErrorCode, UnavailableError
from kohort.records.values import OffsetCommit, OffsetCommitTombstone
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchHeader, iter_batches, read_header, read_marker, read_records, stamp
from kohort.wire.encoders import request_encoder
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from tests.conftest import LONG, watches_calls
from tests.group.golden import batches_of_4_4_0
from tests.group.harness import Coordinator, Image, Topic, subscription
from tests.group.raw_offsets import RUNS, RawLog, picture, recorded, replay_one_by_one
from tests.storage.test_compaction_coordinator import CONFIGS, check

NONE = ErrorCode.NONE
ORDERS = ("orders", 0)
PAYMENTS = ("payments", 0)
MINUTE_MS = 60_000
UNSTABLE = -2


# Pending, committed, aborted


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_are_pending_until_the_marker(committed: bool) -> None:
    coordinator = Coordinator()
    coordinator.commit({ORDERS: 1, PAYMENTS: 1})
    assert coordinator.commit_in_transaction({ORDERS: 5}) == {ORDERS: NONE}
    assert coordinator.fetch() == {ORDERS: 1, PAYMENTS: 1}
    # KIP-447: only the pending partition is unstable.
    assert coordinator.fetch(require_stable=True) == {ORDERS: UNSTABLE, PAYMENTS: 1}
    assert coordinator.end_transaction(committed=committed) is None
    assert coordinator.fetch(require_stable=True) == {ORDERS: 5 if committed else 1, PAYMENTS: 1}


def test_offsets_of_a_group_that_is_not_there_create_it() -> None:
    """As with Kafka, the group stays when the transaction is aborted, until the next cleanup."""
    coordinator = Coordinator(GroupConfig(offsets_retention_check_interval_ms=MINUTE_MS))
    coordinator.commit_in_transaction(metadata=None)
    topic_id = coordinator.image.by_name["orders"].topic_id
    assert coordinator.records() == [OffsetCommit("group", "orders", 0, 1, -1, "", coordinator.now_ms, -1, topic_id)]
    assert (coordinator.listed(), coordinator.fetch()) == ({"group": "Empty"}, {})
    coordinator.end_transaction(committed=False)
    assert coordinator.listed() == {"group": "Empty"}
    coordinator.advance(MINUTE_MS)
    assert coordinator.listed() == {}


def test_a_refused_commit_creates_no_group() -> None:
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=3))
    assert coordinator.commit_in_transaction(metadata="long") == {ORDERS: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert coordinator.commit_in_transaction(generation=0) == {ORDERS: ErrorCode.ILLEGAL_GENERATION}
    coordinator.unverified = CoordinatorError(ErrorCode.TRANSACTION_ABORTABLE)
    assert coordinator.commit_in_transaction() == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}
    assert (coordinator.listed(), coordinator.end) == ({}, 0)


def test_the_leader_epoch_is_stored_since_version_2() -> None:
    coordinator = Coordinator()
    entry = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_leader_epoch=3)
    request = m.TxnOffsetCommitRequest(
        transactional_id="transaction",
        group_id="group",
        producer_id=7,
        producer_epoch=0,
        topics=[m.TxnOffsetCommitRequestTopic(name="orders", partitions=[entry])],
    )
    for version in ApiKey.TXN_OFFSET_COMMIT.oldest, 2:
        # As clients send it: fields that a version lacks have their defaults.
        frame = request_encoder(ApiKey.TXN_OFFSET_COMMIT, version)(1, "c", request)[4:]
        *_, body_start = read_request_header(frame)
        read = request_reader(ApiKey.TXN_OFFSET_COMMIT, version)(frame, body_start)
        answer = coordinator.ask("txn_offset_commit", read, version=version)
        assert answer.topics[0].partitions[0].error_code == NONE
    assert [record.leader_epoch for record in coordinator.records() if isinstance(record, OffsetCommit)] == [-1, 3]


def test_a_commit_in_a_transaction_does_not_keep_the_member_alive() -> None:
    """Source: GroupMetadataManager resets the session in commitOffset only."""
    coordinator = Coordinator()
    (member,) = coordinator.stable(1)
    generation = coordinator.describe_generation()
    coordinator.advance(9_999)
    assert coordinator.commit_in_transaction(member_id=member, generation=generation) == {ORDERS: NONE}
    coordinator.advance(1)
    assert coordinator.heartbeat(member, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_later_plain_commit_wins_over_the_marker() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({ORDERS: 5, ("orders", 1): 6})
    coordinator.commit({ORDERS: 7})
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch() == {ORDERS: 7, ("orders", 1): 6}


def test_a_repeated_commit_within_the_transaction_is_the_last() -> None:
    coordinator = Coordinator()
    for offset in (5, 3, 4):
        coordinator.commit_in_transaction({ORDERS: offset})
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch() == {ORDERS: 4}


@pytest.mark.parametrize("committed", [True, False])
def test_one_marker_ends_the_transaction_of_all_groups_of_the_partition(committed: bool) -> None:
    coordinator = Coordinator()
    for group in ("one", "other"):
        coordinator.commit_in_transaction({ORDERS: 5}, group=group)
    coordinator.commit_in_transaction({ORDERS: 9}, group="one", producer_id=8)
    coordinator.end_transaction(committed=committed)
    assert coordinator.fetch("other", require_stable=True) == ({ORDERS: 5} if committed else {})
    assert coordinator.fetch("one", require_stable=True) == ({ORDERS: UNSTABLE} if committed else {})
    coordinator.end_transaction(producer_id=8, committed=True)
    assert coordinator.fetch("one", require_stable=True) == {ORDERS: 9}


def test_a_marker_that_cannot_be_written_leaves_the_offsets_pending() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({ORDERS: 5})
    coordinator.log.fail_next_append = UnavailableError("the disk is gone")
    assert isinstance(coordinator.end_transaction(committed=True), UnavailableError)
    assert coordinator.shard.offsets.has_pending("group", ORDERS)
    assert coordinator.end_transaction(committed=True) is None
    assert coordinator.fetch(require_stable=True) == {ORDERS: 5}


def test_a_commit_that_cannot_be_written_is_not_pending() -> None:
    coordinator = Coordinator()
    coordinator.log.fail_next_append = UnavailableError("the disk is gone")
    assert coordinator.commit_in_transaction() == {ORDERS: ErrorCode.NOT_COORDINATOR}
    assert (coordinator.listed(), dict(coordinator.shard.offsets.pending)) == ({}, {})


# Fencing


def test_a_member_of_an_earlier_generation_is_fenced() -> None:
    """KIP-447: the zombie's offsets are refused, although its producer is not fenced."""
    coordinator = Coordinator()
    zombie, _ = coordinator.stable(2)
    generation = coordinator.describe_generation()
    coordinator.commit_in_transaction({ORDERS: 5}, member_id=zombie, generation=generation)
    coordinator.leave((zombie, None))
    for sent, code in ((generation, ErrorCode.UNKNOWN_MEMBER_ID), (generation + 1, ErrorCode.UNKNOWN_MEMBER_ID)):
        assert coordinator.commit_in_transaction(member_id=zombie, generation=sent) == {ORDERS: code}
    (survivor,) = coordinator.groups["group"].members
    coordinator.join(survivor)
    assert coordinator.commit_in_transaction(member_id=survivor, generation=generation) == {
        ORDERS: ErrorCode.ILLEGAL_GENERATION
    }
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch() == {ORDERS: 5}


def test_a_producer_of_an_earlier_epoch_is_fenced() -> None:
    """The log knows the epoch; the coordinator is not asked while a transaction of the producer id is open."""
    coordinator = Coordinator()
    assert coordinator.commit_in_transaction({ORDERS: 5}, producer_epoch=3) == {ORDERS: NONE}
    for epoch, code in ((2, ErrorCode.INVALID_PRODUCER_EPOCH), (-1, ErrorCode.INVALID_PRODUCER_EPOCH), (3, NONE)):
        assert coordinator.commit_in_transaction({ORDERS: 6}, producer_epoch=epoch) == {ORDERS: code}
    assert len(coordinator.verifications) == 1
    # A later epoch may be in its next transaction, so the coordinator is asked. Seen on 4.2.1.
    coordinator.unverified = CoordinatorError(ErrorCode.INVALID_PRODUCER_EPOCH)
    later = coordinator.commit_in_transaction({ORDERS: 6}, producer_epoch=4)
    assert (later, len(coordinator.verifications)) == ({ORDERS: ErrorCode.INVALID_PRODUCER_EPOCH}, 2)
    coordinator.unverified = None
    # A fence: the marker carries a later epoch.
    assert coordinator.end_transaction(producer_epoch=4, committed=False) is None
    assert coordinator.commit_in_transaction({ORDERS: 7}, producer_epoch=3) == {
        ORDERS: ErrorCode.INVALID_PRODUCER_EPOCH
    }
    assert coordinator.fetch(require_stable=True) == {}


def test_the_group_is_asked_after_the_verification() -> None:
    """KAFKA-15784. From version 5 on, the partition is thus added to the transaction even if the group refuses the commit."""
    coordinator = Coordinator()
    assert coordinator.commit_in_transaction(generation=4) == {ORDERS: ErrorCode.ILLEGAL_GENERATION}
    assert coordinator.verifications == [Producer("transaction", 7, 0, adds_partition=True)]
    coordinator.unverified = CoordinatorError(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert coordinator.commit_in_transaction(generation=4) == {ORDERS: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert len(coordinator.verifications) == 2, "51 is not retried"


def test_what_is_refused_before_the_group_is_not_verified() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({("none", 0): 1})
    coordinator.commit_in_transaction(group="")
    coordinator.service.is_active = False
    coordinator.commit_in_transaction()
    assert coordinator.verifications == []


# Deletion and expiration


def test_a_group_is_deleted_with_its_pending_offsets() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({ORDERS: 5})
    coordinator.commit_in_transaction({ORDERS: 6}, group="other")
    assert coordinator.delete("group") == {"group": NONE}
    coordinator.end_transaction(committed=True)
    assert (coordinator.fetch(), coordinator.fetch("other")) == ({}, {ORDERS: 6})
    assert coordinator.listed() == {"other": "Empty"}
    assert list(coordinator.shard.offsets.by_group) == ["other"]


def test_a_deleted_offset_is_deleted_from_the_transaction() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({ORDERS: 5, PAYMENTS: 6})
    partition = m.OffsetDeleteRequestPartition(partition_index=0)
    topic = m.OffsetDeleteRequestTopic(name="orders", partitions=[partition])
    assert coordinator.ask("offset_delete", m.OffsetDeleteRequest(group_id="group", topics=[topic])).code is NONE
    assert coordinator.fetch(require_stable=True) == {}
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch(require_stable=True) == {PAYMENTS: 6}


def test_a_deleted_topic_does_not_keep_the_transaction_from_ending() -> None:
    coordinator = Coordinator()
    coordinator.commit_in_transaction({ORDERS: 5, PAYMENTS: 6})
    coordinator.delete_topics("orders")
    del coordinator.image.by_name["orders"]
    coordinator.advance(0)
    assert coordinator.records()[-1] == OffsetCommitTombstone("group", "orders", 0)
    assert coordinator.end_transaction(committed=True) is None
    assert coordinator.fetch(require_stable=True) == {PAYMENTS: 6}
    assert coordinator.commit_in_transaction({ORDERS: 7}) == {ORDERS: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("committed", [True, False])
def test_a_pending_partition_does_not_expire(committed: bool) -> None:
    retention = GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=MINUTE_MS)
    coordinator = Coordinator(retention)
    coordinator.commit({ORDERS: 1, PAYMENTS: 1})
    coordinator.commit_in_transaction({ORDERS: 5, ("orders", 1): 5})
    coordinator.commit_in_transaction({ORDERS: 5}, group="pending only")
    coordinator.advance(10 * MINUTE_MS)
    assert coordinator.fetch() == {ORDERS: 1}
    assert set(coordinator.listed()) == {"group", "pending only"}
    coordinator.end_transaction(committed=committed)
    # An offset keeps the timestamp of its commit, so the next cleanup removes it.
    assert coordinator.fetch() == ({ORDERS: 5, ("orders", 1): 5} if committed else {ORDERS: 1})
    coordinator.advance(MINUTE_MS)
    assert coordinator.fetch() == {}


def test_a_member_that_returns_finds_its_unstable_offsets_after_a_rebalance() -> None:
    """KIP-447: a consumer waits for the transaction of the one before it."""
    coordinator = Coordinator()
    member, _ = coordinator.stable(2, protocols=(("range", subscription("orders")),))
    coordinator.commit_in_transaction({ORDERS: 5}, member_id=member, generation=coordinator.describe_generation())
    coordinator.leave((member, None))
    (survivor,) = coordinator.groups["group"].members
    coordinator.join(survivor, protocols=(("range", subscription("orders")),))
    asked = m.OffsetFetchRequestTopics(name="orders", partition_indexes=[0, 1])
    request = m.OffsetFetchRequest(
        groups=[m.OffsetFetchRequestGroup(group_id="group", topics=[asked])], require_stable=True
    )
    entries = coordinator.ask("offset_fetch", request).groups[0].topics[0].partitions
    assert [entry.error_code for entry in entries] == [ErrorCode.UNSTABLE_OFFSET_COMMIT, NONE]
    coordinator.end_transaction(committed=True)
    entries = coordinator.ask("offset_fetch", request).groups[0].topics[0].partitions
    assert [(entry.committed_offset, entry.error_code) for entry in entries] == [(5, NONE), (-1, NONE)]


# Bounds


@watches_calls
def test_a_transaction_has_a_bound_of_pending_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_commit, "PENDING_OFFSETS_MAX", 3)
    coordinator = Coordinator()
    full = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    wanted = {("orders", index): 5 for index in (0, 1)}
    assert set(coordinator.commit_in_transaction(wanted).values()) == {NONE}
    # The same partition of another group is another offset. A commit is refused as a whole.
    assert set(coordinator.commit_in_transaction(wanted, group="other").values()) == {full}
    assert set(coordinator.commit_in_transaction({("orders", 1): 6, ("orders", 2): 6}).values()) == {NONE}
    assert coordinator.commit_in_transaction({("orders", 3): 6}) == {("orders", 3): full}
    assert coordinator.commit_in_transaction({("orders", 2): 6}, producer_id=8) == {("orders", 2): NONE}
    assert len(coordinator.shard.offsets.pending[7]) == 3
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch() == {("orders", 0): 5, ("orders", 1): 6, ("orders", 2): 6}
    assert coordinator.commit_in_transaction({("orders", 3): 6}) == {("orders", 3): NONE}


@given(st.data())
def test_the_offsets_of_a_transaction_are_taken_over_as_one_by_one(data: st.DataObject) -> None:
    """A marker handles the offsets of a group together. Other producers, later commits and a revert are not affected."""
    partitions = st.tuples(st.sampled_from("gh"), st.integers(0, 3))
    registry = SnapshotRegistry()
    offsets = Offsets(registry)
    committed: dict[tuple[str, int], int] = {}
    pending: dict[int, dict[tuple[str, int], int]] = {}
    for number, (producer_id, (group, partition)) in enumerate(
        data.draw(st.lists(st.tuples(st.sampled_from((-1, 7, 8)), partitions), max_size=20))
    ):
        record = OffsetCommit(group, "t", partition, number, -1, "", 0)
        if producer_id == -1:
            offsets.replay_commit(number, record)
            committed[group, partition] = number
        else:
            offsets.replay_transactional_commit(number, producer_id, record)
            pending.setdefault(producer_id, {})[group, partition] = number
    before = shown(offsets)
    registry.create(100)
    is_committed = data.draw(st.booleans())
    offsets.replay_marker(7, committed=is_committed)
    ended = pending.pop(7, {})
    for place, number in ended.items() if is_committed else ():
        committed[place] = max(number, committed.get(place, -1))
    writers: dict[tuple[str, int], set[int]] = {}
    for producer_id, places in pending.items():
        for place in places:
            writers.setdefault(place, set()).add(producer_id)
    assert shown(offsets) == (committed, pending, writers)
    assert all(offsets.by_group.values())
    assert all(offsets.writers.values())
    registry.revert_to(100)
    assert shown(offsets) == before


def shown(offsets: Offsets) -> tuple[Any, Any, Any]:
    """Committed and pending offsets, and who has pending ones."""
    return (
        {(group, number): it.offset for group, table in offsets.by_group.items() for (_, number), it in table.items()},
        {
            producer_id: {(group, number): it.offset for (group, (_, number)), it in table.items()}
            for producer_id, table in offsets.pending.items()
        },
        {(group, number): set(ids) for group, table in offsets.writers.items() for (_, number), ids in table.items()},
    )


def test_repeated_transactions_leave_nothing_behind() -> None:
    coordinator = Coordinator()
    for number in range(50):
        coordinator.commit_in_transaction({ORDERS: number}, producer_id=number % 3)
        coordinator.end_transaction(producer_id=number % 3, committed=number % 2 == 0)
    offsets = coordinator.shard.offsets
    assert (dict(offsets.pending), dict(offsets.writers)) == ({}, {})
    assert coordinator.fetch() == {ORDERS: 48}


# The bytes of Apache Kafka


def transactional_batches() -> list[tuple[str, bytes, BatchHeader]]:
    return [
        (name, batch, header)
        for name, batch in batches_of_4_4_0()
        for _, header in iter_batches(batch)
        if header.is_transactional and not header.is_control
    ]


def offset_commits(batch: bytes) -> list[OffsetCommit]:
    serde = GroupRecordSerde()
    decoded = [serde.decode(bytes(record.key or b""), record.value) for record in read_records(batch)]
    return [record for record in decoded if isinstance(record, OffsetCommit)]


def test_a_commit_is_written_as_kafka_writes_it() -> None:
    """Each batch of a recorded log, written anew by the same request: the same bytes, base sequence 0 included."""
    batches = transactional_batches()
    equal = 0
    for name, batch, header in batches:
        commits = offset_commits(batch)
        coordinator = Coordinator()
        coordinator.node.clock.set(commits[0].commit_timestamp_ms)
        coordinator.image = Image()
        topics: dict[str, list[m.TxnOffsetCommitRequestPartition]] = {}
        for commit in commits:
            assert commit.topic_id is not None
            coordinator.image.by_name[commit.topic] = Topic(commit.topic, commit.topic_id, 100)
            topics.setdefault(commit.topic, []).append(
                m.TxnOffsetCommitRequestPartition(
                    partition_index=commit.partition,
                    committed_offset=commit.offset,
                    committed_leader_epoch=commit.leader_epoch,
                    committed_metadata=commit.metadata,
                )
            )
        coordinator.restart()
        (group_id,) = {commit.group_id for commit in commits}
        request = m.TxnOffsetCommitRequest(
            transactional_id="transaction",
            group_id=group_id,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            generation_id_or_member_epoch=-1,
            topics=[m.TxnOffsetCommitRequestTopic(name=topic, partitions=entries) for topic, entries in topics.items()],
        )
        coordinator.ask("txn_offset_commit", request)
        (written,) = coordinator.log.batches
        ours = read_header(written)
        for field in ("attributes", "producer_id", "producer_epoch", "base_sequence", "record_count", "size_bytes"):
            assert getattr(ours, field) == getattr(header, field), (name, field)
        assert [(record.key, record.value) for record in read_records(written)] == [
            (record.key, record.value) for record in read_records(batch)
        ]
        if ours.base_timestamp == header.base_timestamp:
            # Kafka reads the clock twice, for the value and for the batch.
            expected = bytearray(batch)
            stamp(expected, base_offset=0, leader_epoch=coordinator.leader_epoch)
            assert written == bytes(expected)
            equal += 1
    assert equal > len(batches) // 2 > 3


# A model


class Model:
    """The offsets of all groups, after each transition as the log would have them: a list of entries with their fate."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, tuple[str, int], int, int | None]] = []
        """Key number, key, offset, and the producer whose transaction is open; None if it counts."""

    def write(self, key: tuple[str, int], offset: int, producer_id: int | None) -> None:
        self.entries.append((len(self.entries), key, offset, producer_id))

    def end(self, producer_id: int, *, committed: bool) -> None:
        self.entries = [
            (place, key, offset, None if owner == producer_id else owner)
            for place, key, offset, owner in self.entries
            if owner != producer_id or committed
        ]

    def delete(self, group: str) -> None:
        self.entries = [entry for entry in self.entries if entry[1][0] != group]

    def fetch(self, group: str, *, require_stable: bool) -> dict[tuple[str, int], int]:
        found = {
            ("orders", key[1]): offset for _, key, offset, owner in self.entries if key[0] == group and owner is None
        }
        if require_stable:
            pending = {("orders", key[1]) for _, key, _, owner in self.entries if key[0] == group and owner is not None}
            found = {partition: UNSTABLE if partition in pending else found[partition] for partition in found}
        return found


SEEDS = 1_000 if LONG else 40


def run_model(seed: int, steps: int = 80) -> Coordinator:
    """Random commits, ends and deletions; after each one the offsets are those of the model, and a load finds the same."""
    chance = Random(seed)
    coordinator, model = Coordinator(), Model()
    groups, producers = ("a", "b", "c"), (7, 8)
    for number in range(steps):
        group, producer_id = chance.choice(groups), chance.choice(producers)
        partitions = chance.sample(range(4), chance.choice((1, 1, 3)))
        wanted: dict[tuple[str, int], int] = {("orders", index): number for index in partitions}
        match chance.choices(("plain", "transactional", "end", "delete", "restart"), (20, 40, 25, 5, 10))[0]:
            case "plain":
                coordinator.commit(wanted, group=group)
                for index in partitions:
                    model.write((group, index), number, None)
            case "transactional":
                coordinator.commit_in_transaction(wanted, group=group, producer_id=producer_id)
                for index in partitions:
                    model.write((group, index), number, producer_id)
            case "end":
                committed = chance.random() < 0.6
                coordinator.end_transaction(producer_id=producer_id, committed=committed)
                model.end(producer_id, committed=committed)
            case "delete":
                coordinator.delete(group)
                model.delete(group)
            case "restart":
                live = picture(coordinator.shard)
                coordinator.restart()
                assert offsets_of(coordinator) == {key: live[key] for key in ("offsets", "pending", "writers")}
        for group in groups:
            for require_stable in (False, True):
                assert coordinator.fetch(group, require_stable=require_stable) == model.fetch(
                    group, require_stable=require_stable
                ), f"seed {seed}, step {number}"
    return coordinator


def offsets_of(coordinator: Coordinator) -> dict[str, Any]:
    found = picture(coordinator.shard)
    return {key: found[key] for key in ("offsets", "pending", "writers")}


@pytest.mark.timeout(600)
def test_any_history_is_that_of_the_model() -> None:
    for seed in range(SEEDS):
        run_model(seed)


def test_a_history_is_the_same_record_by_record_and_compacted(tmp_path: Path) -> None:
    for seed in range(200 if LONG else 4):
        coordinator = run_model(seed)
        log = RawLog(coordinator.log.batches)
        one_by_one = picture(replay_one_by_one(log))
        assert offsets_of(coordinator) == {key: one_by_one[key] for key in ("offsets", "pending", "writers")}
        for place, config in enumerate(CONFIGS):
            check(tmp_path / f"{seed} {place}", log, config)


@pytest.mark.parametrize("run", RUNS)
def test_markers_of_recorded_logs_end_what_kafka_ended(run: str) -> None:
    """A transaction is pending after the load if no marker of its producer id follows in its partition."""
    for name, log in recorded(run).items():
        open_ids: set[int] = set()
        for batch in log.batches:
            for _, header in iter_batches(batch):
                if header.is_control and read_marker(read_records(batch, header=header)[0]) is not None:
                    open_ids.discard(header.producer_id)
                elif header.is_transactional:
                    open_ids.add(header.producer_id)
        assert set(replay_one_by_one(log).offsets.pending) <= open_ids, name
