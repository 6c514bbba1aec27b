"""
A simulation of the group coordinator's shard: `simulate(seed, group_subject(), GroupWorkload())`.

Members join, synchronize, send heartbeats, leave and commit offsets, also in transactions, as their clients would: with the
member id and generation that the coordinator answered. Beside the guarantees of every simulation these are checked:

- the generation of an acknowledged SyncGroup never goes back;
- a member gets the assignment that the leader of its generation sent for it, and no other;
- all members of a generation get the assignments of one leader;
- a stable group that is loaded from the log has the generation, leader, members and assignments of the live one;
- ten minutes after the last fault every JoinGroup and SyncGroup is answered: members that are silent have expired by then.

A leader that repeats its SyncGroup gets the assignment of its first one, also while that is not committed. In Apache Kafka
the log would hold the later one.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

import msgspec

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.heartbeat import heartbeat
from kohort.group.classic.join import join_group
from kohort.group.classic.leave import leave_group
from kohort.group.classic.states import STABLE
from kohort.group.classic.sync import sync_group
from kohort.group.configs import GroupConfig
from kohort.group.offsets.commit import offset_commit
from kohort.group.offsets.transactional_commit import txn_offset_commit
from kohort.group.records import GroupRecordSerde
from kohort.group.shard import GroupShard
from kohort.machine.bulk import LongRecords
from kohort.machine.shard import Deadlines, EndTransaction, Producer, Result
from kohort.machine.steps import Operation
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode
from kohort.testing.context import FixedContext
from kohort.testing.simulation import Subject, Work
from kohort.wire import messages as m

_GROUPS: Final = ("a", "b")
_PRODUCERS: Final = (7, 8)
_TOPIC: Final = "orders"
_MEMBERS_MAX: Final = 6
_VERSION: Final = 9
_TRANSACTIONAL_VERSION: Final = 5
_SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 9_000

CONFIG: Final = GroupConfig(group_initial_rebalance_delay_ms=500, group_max_size=4)


class GroupGuaranteeError(AssertionError):
    """A guarantee of the group protocol was broken."""


class _Unsettled:
    """Equals the contents of any group: the contents of a rebalancing group are ahead of its log."""

    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return "a group that rebalances"


UNSETTLED: Final = _Unsettled()


class GroupPictures(dict[str, object]):
    """
    The contents of groups by id. A group that rebalances equals all contents: it is ahead of its log.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GroupPictures):
            return False
        return self.keys() == other.keys() and all(value == other[id_] for id_, value in self.items())

    __hash__ = None


def group_subject(config: GroupConfig = CONFIG) -> Subject[GroupShard]:
    """A group coordinator of one partition."""
    uuids = count(1)

    def make_shard(_partition: int, registry: SnapshotRegistry, deadlines: Deadlines) -> GroupShard:
        return GroupShard(registry, deadlines, config, lambda: f"uuid{next(uuids)}")

    return Subject(make_shard, GroupRecordSerde(), picture, partition_count=1)


def picture(shard: GroupShard, offset: int) -> object:
    """The hard state of a shard at an offset."""
    offsets = shard.offsets
    return {
        "groups": GroupPictures(
            (group_id, classic_contents(group, offset)) for group_id, group in sorted(shard.groups.items_at(offset))
        ),
        "offsets": {group_id: dict(table.items_at(offset)) for group_id, table in offsets.by_group.items_at(offset)},
        "pending": {producer: dict(table.items_at(offset)) for producer, table in offsets.pending.items_at(offset)},
        "writers": {group_id: dict(table.items_at(offset)) for group_id, table in offsets.writers.items_at(offset)},
    }


def classic_contents(group: object, offset: int) -> object:
    """The contents of a stable group at an offset."""
    assert isinstance(group, ClassicGroup)
    if group.state_at(offset) is not STABLE:
        return UNSETTLED
    fields = [group.value_at(name, offset) for name in ("generation", "protocol_name", "leader")]
    assignments = sorted((member.member_id, member.assignment) for _, member in group.members.items_at(offset))
    return fields, assignments


class _Member(msgspec.Struct):
    """A client, with what it knows from its answers. It has one request in flight at a time, but for repeated ones."""

    group_id: str
    member_id: str = ""
    generation: int = -1
    assigns_to: tuple[str, ...] = ()
    """The members of its generation, if this one is the leader."""
    rebalance: int = 0
    """A number for its last successful join."""
    step: str = "join"
    """Its next request: "join", "sync", or "" when it has an assignment."""
    is_waiting: bool = False


class GroupWorkload:
    """The requests of the members of two groups, and of transactional producers, in one simulation."""

    def __init__(self) -> None:
        self._members: list[_Member] = []
        self._numbers = count(1)
        self._newest_generation: dict[str, int] = {}
        self._assigned_by: dict[tuple[str, int], str] = {}
        """The rebalance whose assignments a generation has, by group and generation."""
        self.answered: Counter[str] = Counter()
        """Successful answers by kind."""

    def __call__(self, chance: Random) -> Work:
        if len(self._members) < _MEMBERS_MAX and (not self._members or chance.random() < 0.2):
            self._members.append(_Member(chance.choice(_GROUPS)))
        member = chance.choice(self._members)
        if chance.random() < 0.15:
            return self._transaction(chance, member)
        ready = [each for each in self._members if not each.is_waiting]
        if ready and chance.random() < 0.9:
            member = chance.choice(ready)
        if member.step and chance.random() < 0.9:
            return self._join(member) if member.step == "join" else self._sync(member)
        makers = (self._join, self._sync, self._heartbeat, self._commit, self._leave)
        (make,) = chance.choices(makers, (2, 10, 30, 30, 3))
        return make(member)

    def _work(
        self,
        kind: str,
        member: _Member,
        operation: Callable[[GroupShard, int], Result[Any, Any]],
        heard: Callable[[Any], None],
    ) -> Work:
        member.is_waiting = True

        def on_answer(answer: Any) -> None:
            member.is_waiting = False
            if isinstance(answer, Exception):
                return
            code = _code(answer)
            if code == ErrorCode.NONE:
                self.answered[kind] += 1
            elif code == ErrorCode.UNKNOWN_MEMBER_ID:
                member.member_id, member.step = "", "join"
            elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
                member.step = "join"
            heard(answer)

        return Work(operation, on_answer=on_answer)

    def _join(self, member: _Member) -> Work:
        request = m.JoinGroupRequest(
            group_id=member.group_id,
            member_id=member.member_id,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
        )
        context = FixedContext(_VERSION, "client", "/127.0.0.1")

        operation = Operation(join_group, request, context)
        return self._work("join", member, operation, partial(self._joined, member))

    def _joined(self, member: _Member, answer: m.JoinGroupResponse) -> None:
        if answer.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            member.member_id = answer.member_id
        if answer.error_code == ErrorCode.NONE:
            member.generation, member.step = answer.generation_id, "sync"
            member.rebalance = next(self._numbers)
            member.assigns_to = tuple(each.member_id for each in answer.members)

    def _sync(self, member: _Member) -> Work:
        generation = member.generation
        request = m.SyncGroupRequest(
            group_id=member.group_id,
            generation_id=generation,
            member_id=member.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m.SyncGroupRequestAssignment(
                    member_id=member_id, assignment=f"{member.rebalance} {generation} {member_id}".encode()
                )
                for member_id in member.assigns_to
            ],
        )

        operation = Operation(sync_group, request)
        return self._work("sync", member, operation, partial(self._synced, member, member.member_id, generation))

    def _synced(self, member: _Member, member_id: str, generation: int, answer: m.SyncGroupResponse) -> None:
        group_id = member.group_id
        if answer.error_code != ErrorCode.NONE or not answer.assignment:
            return
        if member.generation == generation:
            member.step = ""
        newest = self._newest_generation.get(group_id, generation)
        _guarantee(generation >= newest, f"generation {generation} of {group_id} after {newest}")
        self._newest_generation[group_id] = generation
        number, assigned_in, assigned_to = answer.assignment.decode().split(" ", 2)
        _guarantee(
            (int(assigned_in), assigned_to) == (generation, member_id),
            f"{member_id} in generation {generation} got the assignment {answer.assignment!r}",
        )
        first = self._assigned_by.setdefault((group_id, generation), number)
        _guarantee(first == number, f"two assignments of generation {generation} of {group_id}: {first} and {number}")

    def _heartbeat(self, member: _Member) -> Work:
        request = m.HeartbeatRequest(
            group_id=member.group_id, generation_id=member.generation, member_id=member.member_id
        )
        return self._work("heartbeat", member, Operation(heartbeat, request), _ignore)

    def _leave(self, member: _Member) -> Work:
        self._members.remove(member)
        identity = m.LeaveGroupRequestMemberIdentity(member_id=member.member_id)
        request = m.LeaveGroupRequest(group_id=member.group_id, members=[identity])
        return self._work("leave", member, Operation(leave_group, request), _ignore)

    def _commit(self, member: _Member) -> Work:
        partitions = [
            m.OffsetCommitRequestPartition(partition_index=index, committed_offset=next(self._numbers))
            for index in range(3)
        ]
        request = m.OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[m.OffsetCommitRequestTopic(name=_TOPIC, partitions=partitions)],
        )

        is_long = next(self._numbers) % 2 == 0

        entries = [(_TOPIC, None, partition) for partition in partitions]

        def operation(shard: GroupShard, now_ms: int) -> Result[Any, Any]:
            result = offset_commit(shard, now_ms, request, entries, _VERSION)
            # As with hundreds of partitions.
            return Result(LongRecords(list(result.records), _itself), result.response) if is_long else result

        return self._work("commit", member, operation, _ignore)

    def _transaction(self, chance: Random, member: _Member) -> Work:
        producer_id = chance.choice(_PRODUCERS)
        if chance.random() < 0.4:
            end = EndTransaction(producer_id, 0, 0, chance.random() < 0.6)
            return Work(end=end, on_answer=partial(self._ended, "end transaction"))
        offset = next(self._numbers)
        entry = m.TxnOffsetCommitRequestPartition(partition_index=offset % 3, committed_offset=offset)
        is_named = chance.random() < 0.5
        request = m.TxnOffsetCommitRequest(
            transactional_id="transaction",
            group_id=member.group_id,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id_or_member_epoch=member.generation if is_named else -1,
            member_id=member.member_id if is_named else "",
            topics=[m.TxnOffsetCommitRequestTopic(name=_TOPIC, partitions=[entry])],
        )

        return Work(
            Operation(
                txn_offset_commit,
                request,
                [(_TOPIC, None, entry)],
                {(member.group_id, (_TOPIC, entry.partition_index))},
                _TRANSACTIONAL_VERSION,
            ),
            producer=Producer("transaction", producer_id, 0),
            on_answer=partial(self._committed, "transactional commit"),
        )

    def _committed(self, kind: str, answer: Any) -> None:
        if not isinstance(answer, Exception) and _code(answer) == ErrorCode.NONE:
            self.answered[kind] += 1

    def _ended(self, kind: str, answer: Any) -> None:
        if not isinstance(answer, Exception):
            self.answered[kind] += 1


def _guarantee(is_kept: bool, otherwise: str) -> None:
    if not is_kept:
        raise GroupGuaranteeError(otherwise)


def _code(answer: Any) -> int:
    """The error code of a response."""
    if isinstance(answer, ErrorCode):
        return answer
    code: int = answer.error_code
    return code


def _itself(record: Any) -> Any:
    return record


def _ignore(_answer: Any) -> None:
    """The client needs nothing of this answer."""
