"""
Invariants of the group coordinator under random requests and faults of the log.

Every request is answered once; a generation has one leader; a member owns only what its leader assigned to it in its
generation, and no two members own the same; a shard that is loaded from the log equals the one that wrote it.
"""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import Bundle, consumes, initialize, invariant, multiple, rule

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from kohort.group.configs import GroupConfig
from kohort.group.records import GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.machine.shard import EndTransaction
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode
from kohort.records.values import OffsetCommit
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.testing.watched import NoDeadlines
from kohort.wire import messages as m
from kohort.wire.batches import encode_batch
from tests.group.harness import Answer, Coordinator, classic_groups
from tests.group.trouble import SETTINGS, Trouble

GROUPS = ("a", "b")
PRODUCERS = (7, 8)
INSTANCES = (None, None, "x", "y")
METADATA = (b"1", b"2")
SESSION_MS, REBALANCE_MS, DELAY_MS = 6_000, 9_000, 3_000
CONFIG = GroupConfig(
    group_initial_rebalance_delay_ms=DELAY_MS,
    group_max_size=4,
    offsets_retention_minutes=1,
    offsets_retention_check_interval_ms=50_000,
)


def picture(group: ClassicGroup) -> object:
    """What a load brings back of a stable group, but for its time: the record is written a moment before it is stable."""
    return (
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader,
        sorted(
            (
                member.member_id,
                member.group_instance_id or "",
                member.rebalance_timeout_ms,
                member.session_timeout_ms,
                member.metadata(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        ),
    )


class Groups(Trouble):
    """Members: group, member id, instance id. They are used again after they have left, too."""

    members = Bundle("members")

    @initialize(version=st.sampled_from([3, 8, 9]))
    def start(self, version: int) -> None:
        self.version = version
        self.coordinator = Coordinator(CONFIG)
        self.answers: list[Answer] = []
        self.joins: list[tuple[str, Answer]] = []
        """Those that are not answered yet, with their group."""
        self.leaders: dict[tuple[ClassicGroup, int], str] = {}
        self.syncs: list[tuple[str, str, int, bool, Answer]] = []
        """Group, member id, generation and whether the member is static, of requests that are not answered yet."""
        self.outdated: GroupShard | None = None
        """The shard that has not noticed yet that another writer appended to the log."""

    def note(self, answer: Answer) -> Answer:
        self.answers.append(answer)
        return answer

    # Members

    @rule(
        target=members,
        group=st.sampled_from(GROUPS),
        instance=st.sampled_from(INSTANCES),
        metadata=st.sampled_from(METADATA),
    )
    def arrive(self, group: str, instance: str | None, metadata: bytes) -> Any:
        answer = self._join(group, "", instance, metadata)
        if answer.is_parked:
            # Its id is in the group already, though its client does not know it yet.
            found = self.coordinator.groups.get(group)
            return multiple(*((group, id_, instance) for id_ in (found.members if found else ())))
        return (group, answer.member_id, instance) if answer.member_id else multiple()

    @rule(member=members, metadata=st.sampled_from(METADATA))
    def rejoin(self, member: tuple[str, str, str | None], metadata: bytes) -> None:
        group, member_id, instance = member
        found = self.coordinator.groups.get(group)
        if found is not None and member_id in found.pending_members and instance is not None:
            instance = None
        self._join(group, member_id, instance, metadata)

    def _join(self, group: str, member_id: str, instance: str | None, metadata: bytes) -> Answer:
        answer = self.coordinator.join(
            member_id,
            group=group,
            instance=instance,
            protocols=(("range", metadata), ("sticky", b"")),
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
            version=self.version,
        )
        self.joins.append((group, answer))
        return self.note(answer)

    @rule(group=st.sampled_from(GROUPS))
    def everybody_rejoins(self, group: str) -> None:
        found = self.coordinator.groups.get(group)
        for member in list(found.members.values()) if found else ():
            self._join(group, member.member_id, member.group_instance_id, b"1")

    @rule(member=members, stale=st.booleans())
    def sync(self, member: tuple[str, str, str | None], stale: bool) -> None:
        group, member_id, instance = member
        found = self.coordinator.groups.get(group)
        generation = (found.generation if found else 0) - stale
        assignments = {id_: f"{generation} {id_}".encode() for id_ in found.members} if found else {}
        answer = self.coordinator.sync(
            member_id, generation, assignments, group=group, instance=instance, protocol_name=None, version=4
        )
        self.syncs.append((group, member_id, generation, instance is not None, self.note(answer)))

    @rule(group=st.sampled_from(GROUPS))
    def everybody_syncs(self, group: str) -> None:
        found = self.coordinator.groups.get(group)
        for member in list(found.members.values()) if found else ():
            self.sync((group, member.member_id, member.group_instance_id), stale=False)

    @rule(member=members)
    def heartbeat(self, member: tuple[str, str, str | None]) -> None:
        group, member_id, instance = member
        found = self.coordinator.groups.get(group)
        request = m.HeartbeatRequest(
            group_id=group,
            generation_id=found.generation if found else 0,
            member_id=member_id,
            group_instance_id=instance,
        )
        self.note(self.coordinator.ask("heartbeat", request))

    @rule(member=consumes(members), by_instance=st.booleans())
    def leave(self, member: tuple[str, str, str | None], by_instance: bool) -> None:
        group, member_id, instance = member
        by_instance = by_instance and instance is not None
        identity = m.LeaveGroupRequestMemberIdentity(
            member_id="" if by_instance else member_id, group_instance_id=instance
        )
        self.note(self.coordinator.ask("leave_group", m.LeaveGroupRequest(group_id=group, members=[identity])))

    # Offsets and administration

    @rule(member=members, partition=st.integers(0, 2), offset=st.integers(0, 9))
    def commit(self, member: tuple[str, str, str | None], partition: int, offset: int) -> None:
        group, member_id, instance = member
        found = self.coordinator.groups.get(group)
        entry = m.OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = m.OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=found.generation if found else -1,
            member_id=member_id,
            group_instance_id=instance,
            topics=[m.OffsetCommitRequestTopic(name="orders", partitions=[entry])],
        )
        self.note(self.coordinator.ask("offset_commit", request))

    @rule(group=st.sampled_from(GROUPS), producer_id=st.sampled_from(PRODUCERS), partition=st.integers(0, 2))
    def commit_in_transaction(self, group: str, producer_id: int, partition: int) -> None:
        entry = m.TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=producer_id)
        request = m.TxnOffsetCommitRequest(
            transactional_id="transaction",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id_or_member_epoch=-1,
            topics=[m.TxnOffsetCommitRequestTopic(name="orders", partitions=[entry])],
        )
        self.note(self.coordinator.ask("txn_offset_commit", request))

    @rule(producer_id=st.sampled_from(PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        end = EndTransaction(producer_id, 0, 0, committed)
        self.coordinator.runtime.end_transaction(0, end, self.note(Answer()).responses.append)
        self.settle()

    @rule(group=st.sampled_from(GROUPS))
    def delete(self, group: str) -> None:
        self.note(self.coordinator.ask("delete_groups", m.DeleteGroupsRequest(groups_names=[group])))

    # Time and trouble

    @rule(duration_ms=st.sampled_from([1, DELAY_MS - 1, DELAY_MS, SESSION_MS - 1, SESSION_MS, REBALANCE_MS, 50_000]))
    def wait(self, duration_ms: int) -> None:
        self.pass_time(duration_ms)

    @rule(group=st.sampled_from(GROUPS))
    def append_by_another_writer(self, group: str) -> None:
        """The next write of the shard lands at another offset than it expects: it is loaded again."""
        self.outdated = self.coordinator.shard
        commit = OffsetCommit(group, "payments", 0, self.coordinator.end, -1, "", self.coordinator.now_ms)
        batch = encode_batch([GroupRecordSerde().encode(commit)], self.coordinator.now_ms)
        failure, self.coordinator.log.fail_next_append = self.coordinator.log.fail_next_append, None
        self.coordinator.log.append(batch, leader_epoch=self.coordinator.leader_epoch)
        self.coordinator.log.fail_next_append = failure
        self.settle()

    # Invariants

    @invariant()
    def no_request_is_answered_twice(self) -> None:
        assert all(len(answer.responses) <= 1 for answer in self.answers)

    @invariant()
    def requests_wait_in_the_states_of_a_rebalance(self) -> None:
        for group in self.coordinator.groups.values():
            assert set(group.waiting) <= set(group.members)
            assert not group.waiting or group.state in (PREPARING_REBALANCE, COMPLETING_REBALANCE)
            assert set(group.static_members.values()) <= set(group.members)
            assert (group.leader in group.members) or not group.members
            assert not set(group.pending_members) & set(group.members)

    @invariant()
    def a_generation_has_one_leader(self) -> None:
        for group_id, answer in self.joins:
            group = self.coordinator.groups.get(group_id)
            if answer.is_parked or group is None or not answer.members or answer.skip_assignment:
                continue
            assert answer.leader == answer.member_id
            assert answer.member_id in {member.member_id for member in answer.members}
            assert self.leaders.setdefault((group, answer.generation_id), answer.member_id) == answer.member_id
        self.joins = [(group_id, answer) for group_id, answer in self.joins if answer.is_parked]

    @invariant()
    def a_member_owns_only_what_it_was_given(self) -> None:
        for _, member_id, generation, is_static, answer in self.syncs:
            if answer.is_parked or answer.code is not ErrorCode.NONE or not answer.assignment:
                continue
            given_in, _, given_to = answer.assignment.decode().partition(" ")
            assert int(given_in) == generation
            # The replacement of a static member takes over its assignment.
            assert given_to == member_id or is_static
        self.syncs = [entry for entry in self.syncs if entry[-1].is_parked]
        for group in self.coordinator.groups.values():
            if group.state is STABLE:
                owned = [member.assignment for member in group.members.values() if member.assignment]
                assert len(owned) == len(set(owned))
                assert all(assignment.startswith(b"%d " % group.generation) for assignment in owned)

    @invariant()
    def a_loaded_shard_equals_the_live_one(self) -> None:
        log = self.coordinator.log
        if self.coordinator.is_burst or log.is_held or log.high_watermark != log.end_offset:
            return
        if self.outdated is self.coordinator.shard:
            return
        fresh = GroupShard(SnapshotRegistry(), NoDeadlines(), CONFIG, lambda: "")
        for _ in load(log, fresh, GroupRecordSerde(), LoadSummary(), start=0, end=log.end_offset):
            pass
        live, groups = self.coordinator.shard, classic_groups(fresh)
        assert set(fresh.groups) == set(live.groups)
        assert {group: dict(offsets) for group, offsets in fresh.offsets.by_group.items()} == {
            group: dict(offsets) for group, offsets in live.offsets.by_group.items()
        }
        assert {group: dict(writers) for group, writers in fresh.offsets.writers.items()} == {
            group: dict(writers) for group, writers in live.offsets.writers.items()
        }
        for group_id, group in self.coordinator.groups.items():
            if group.state is STABLE:
                assert picture(groups[group_id]) == picture(group)

    def teardown(self) -> None:
        """Given time, every request is answered."""
        if not hasattr(self, "coordinator"):
            return
        self.go_on()
        self.coordinator.log.fail_next_append = None
        self.coordinator.advance(400_000)
        assert all(len(answer.responses) == 1 for answer in self.answers)
        codes = {ErrorCode(a.response.error_code) for a in self.answers if hasattr(a.response, "error_code")}
        assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes


Groups.TestCase.settings = SETTINGS
TestGroups = Groups.TestCase
