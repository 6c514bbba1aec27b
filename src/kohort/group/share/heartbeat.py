"""
ShareGroupHeartbeat (76), version 1: join, stay in and leave a share group.

A heartbeat updates the member, raises the group epoch if the subscriptions, their topics or the initialized partitions changed,
computes the target assignment of a new epoch, and takes the member to its target. There is no revocation: a partition may have
several members at any time. Partitions whose state is not initialized are assigned to nobody. The heartbeat that finds some
notes them, and its answer goes out before they are initialized.

Source: Kafka GroupMetadataManager.shareGroupHeartbeat, ShareGroupAssignmentBuilder; KIP-932.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from kohort.group.assignments import entries_of, of_topics
from kohort.group.assignors.simple import assign_shared
from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment, GroupSpec, MemberSpec
from kohort.group.context import HasContext
from kohort.group.events import EpochRaised, GroupEvent, HeartbeatRefused, MemberJoined
from kohort.group.groups import SHARE, of_another_kind
from kohort.group.modern import REFRESH_INTERVAL_MS
from kohort.group.records import GroupRecord
from kohort.group.share.group import ShareGroup
from kohort.group.share.member import JOIN_EPOCH, LEAVE_EPOCH, ShareMember
from kohort.group.share.records import current_record, member_record, target_record
from kohort.group.share.registry import ShareRegistry, registry_of
from kohort.group.share.removal import leave, session_deadline
from kohort.machine.shard import Result
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.records.values import ShareGroupMetadata, ShareGroupTargetAssignmentMetadata
from kohort.wire import messages as m
from kohort.wire.generated.gradual import drain


class Initialization(NamedTuple):
    """
    Share partitions whose state is to be made.

    Attributes:
        of_new_topics: partitions whose leaders choose the start offset; the others begin at 0.
        of_known_topics: new partitions of topics with other partitions that are initialized.
    """

    group_id: str
    state_epoch: int
    of_new_topics: Assignment
    of_known_topics: Assignment


class HeartbeatAnswer(NamedTuple):
    response: m.ShareGroupHeartbeatResponse
    initialization: Initialization | None = None


HeartbeatResult: TypeAlias = Result[GroupRecord, HeartbeatAnswer]


def heartbeat_refused(error: CoordinatorError) -> m.ShareGroupHeartbeatResponse:
    return m.ShareGroupHeartbeatResponse(error_code=int(error.code), error_message=error.message)


def share_group_heartbeat(
    shard: HasContext, now_ms: int, request: m.ShareGroupHeartbeatRequest, context: RequestContext
) -> HeartbeatResult:
    """Handle a heartbeat whose form is valid. Nothing is written if it is refused."""
    registry = registry_of(shard)
    unchanged = _unchanged(registry, request, context)
    if unchanged is not None:
        return unchanged
    try:
        if request.member_epoch == LEAVE_EPOCH:
            left = m.ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)
            return leave(registry, request.group_id, request.member_id, HeartbeatAnswer(left))
        return _Heartbeat(registry, request, context, now_ms).run()
    except CoordinatorError as error:
        effects = [HeartbeatRefused.of_share(request, error)]
        return Result(response=HeartbeatAnswer(heartbeat_refused(error)), effects=effects)


def _unchanged(
    registry: ShareRegistry, request: m.ShareGroupHeartbeatRequest, context: RequestContext
) -> HeartbeatResult | None:
    """
    The result of a heartbeat that tells nothing, of a member that is at its target; None for any other.

    This is the steady state, and a short cut for speed: `_Heartbeat` gives the same result.
    """
    epoch = request.member_epoch
    if epoch <= JOIN_EPOCH or request.subscribed_topic_names is not None or request.rack_id is not None:
        return None
    group = registry.find(request.group_id)
    member = None if group is None else group.members.get(request.member_id)
    if (
        group is None
        or member is None
        or member.epoch != epoch
        or not _is_settled(registry, group)
        or group.assignment_epoch.get() != epoch
        or member.client_id != context.client_id
        or member.client_host != context.client_host
    ):
        return None
    timeouts = registry.timeouts(group.group_id)
    registry.renew_session(group.group_id, member.member_id, timeouts.session_timeout_ms)
    response = m.ShareGroupHeartbeatResponse(
        member_id=member.member_id, member_epoch=epoch, heartbeat_interval_ms=timeouts.heartbeat_interval_ms
    )
    return Result(response=HeartbeatAnswer(response))


def _is_settled(registry: ShareRegistry, group: ShareGroup) -> bool:
    """Whether group and topics are as they were when a heartbeat found nothing to initialize and nothing to assign."""
    known = group.settled
    return (
        known is not None
        and known[0] is group.states.get()
        and known[1] == group.epoch.get() == group.assignment_epoch.get()
        and known[2] == registry.context.image.version
    )


class _Heartbeat:
    """The handling of one heartbeat."""

    def __init__(
        self, registry: ShareRegistry, request: m.ShareGroupHeartbeatRequest, context: RequestContext, now_ms: int
    ) -> None:
        self._registry = registry
        self._request = request
        self._context = context
        self._now_ms = now_ms
        self._records: list[GroupRecord] = []
        self._events: list[GroupEvent] = []
        self._group = self._find_group()

    def run(self) -> HeartbeatResult:
        group, request = self._group, self._request
        member = self._find_member()
        updated = self._update(member)
        names_changed = updated.topic_names != member.topic_names
        epoch = self._next_epoch(updated, names_changed=names_changed)
        target, target_epoch = self._target(updated, epoch)
        reconciled = self._reconcile(updated, target, target_epoch, names_changed=names_changed)
        timeouts = self._registry.timeouts(group.group_id)
        has_all = request.member_epoch == JOIN_EPOCH or request.subscribed_topic_names is not None
        response = m.ShareGroupHeartbeatResponse(
            member_id=reconciled.member_id,
            member_epoch=reconciled.epoch,
            heartbeat_interval_ms=timeouts.heartbeat_interval_ms,
            assignment=_assignment(reconciled.assigned) if has_all or reconciled.assigned != member.assigned else None,
        )
        answer = HeartbeatAnswer(response, self._initialization(updated, epoch))
        deadline = session_deadline(group.group_id, member.member_id, timeouts.session_timeout_ms)
        return Result(self._records, answer, deadlines=[deadline], effects=self._events)

    def _find_group(self) -> ShareGroup:
        """
        The group; a new one if the member joins. A group of another kind stays as it is, even if it is empty.

        Raises:
            CoordinatorError: GROUP_ID_NOT_FOUND.
        """
        group_id = self._request.group_id
        found = self._registry.groups.get(group_id)
        if isinstance(found, ShareGroup):
            return found
        if found is not None:
            raise of_another_kind(group_id, SHARE)
        if self._request.member_epoch != JOIN_EPOCH:
            raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        group = self._registry.new_group(group_id)
        # From here on nothing refuses the heartbeat. The group keeps the time at which its initialization begins.
        self._registry.context.prepared.put(group_id, group)
        return group

    def _find_member(self) -> ShareMember:
        """
        The member that the heartbeat comes from; a new one if it joins.

        Raises:
            CoordinatorError: GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH.
        """
        group, member_id, epoch = self._group, self._request.member_id, self._request.member_epoch
        size_max = self._registry.config.group_share_max_size
        if len(group.members) >= size_max and member_id not in group.members:
            raise CoordinatorError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {size_max} members.",
            )
        if epoch == JOIN_EPOCH:
            return group.members.get(member_id) or ShareMember(member_id)
        member = group.known(member_id)
        if epoch > member.epoch:
            raise _fenced(
                f"The share group member has a greater member epoch ({epoch}) than the one known by the group coordinator "
                f"({member.epoch})."
            )
        if epoch not in (member.epoch, member.previous_epoch):
            raise _fenced(
                f"The share group member has a smaller member epoch ({epoch}) than the one known by the group coordinator "
                f"({member.epoch}), and it does not match the previous member epoch ({member.previous_epoch})."
            )
        return member

    def _update(self, member: ShareMember) -> ShareMember:
        """The member with the fields that the request has. It is written if it is new or changed."""
        request, context, group_id = self._request, self._context, self._group.group_id
        names = request.subscribed_topic_names
        updated = msgspec.structs.replace(
            member,
            rack_id=member.rack_id if request.rack_id is None else request.rack_id,
            client_id=context.client_id,
            client_host=context.client_host,
            topic_names=member.topic_names if names is None else frozenset(names),
        )
        if updated != member:
            self._records.append(member_record(group_id, updated))
        if member.member_id not in self._group.members:
            joined = MemberJoined(group_id, updated.member_id, None, updated.client_id, updated.client_host)
            self._events.append(joined)
        return updated

    def _next_epoch(self, updated: ShareMember, *, names_changed: bool) -> int:
        """The group epoch after the update. It rises if the member's topics, a topic or the initialized partitions changed."""
        registry, group = self._registry, self._group
        epoch = group.epoch.get()
        is_due = names_changed or (group.assignment_epoch.get() >= epoch and self._has_unassigned())
        if not is_due and not group.needs_refresh(self._now_ms):
            return epoch
        metadata_hash = registry.metadata_hash(group.view_after(updated).topics)
        if is_due or metadata_hash != group.metadata_hash.get():
            epoch += 1
            self._records.append(ShareGroupMetadata(group.group_id, epoch, metadata_hash))
            self._events.append(EpochRaised(group.group_id, epoch, updated.member_id, SHARE))
        group.refresh_at_ms = self._now_ms + REFRESH_INTERVAL_MS
        group.refresh_epoch = epoch
        return epoch

    def _has_unassigned(self) -> bool:
        """Whether the target assignment has other partitions of a subscribed topic than those that are initialized."""
        group = self._group
        if not group.members or _is_settled(self._registry, group):
            return False
        assigned: dict[UUID, set[int]] = {}
        for target in group.targets.values():
            for topic_id, partitions in target.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        initialized = group.known_states.initialized
        return any(
            set(initialized[topic_id]) != assigned.get(topic_id, set())
            for topic_id in self._registry.topic_ids(group.subscribed_topics())
            if topic_id in initialized
        )

    def _target(self, updated: ShareMember, epoch: int) -> tuple[Assignment, int]:
        """
        The target of the member and its epoch; computed if the group epoch is above the one of the assignment.

        Until the assignment interval has passed, the member goes on with the last target. No timer ends the interval: the next
        heartbeat does.
        """
        group, now_ms = self._group, self._now_ms
        known, known_epoch = group.targets.get(updated.member_id, NO_ASSIGNMENT), group.assignment_epoch.get()
        if epoch <= known_epoch or not self._registry.may_assign(SHARE, group, now_ms):
            return known, known_epoch
        members = {**group.members, updated.member_id: updated}
        assignment = drain(assign_shared(self._spec(members, updated), self._assignable(updated)))
        for member_id, target in assignment.items():
            old = group.targets.get(member_id)
            if old is None or (old is not target and old != target):
                self._records.append(target_record(group.group_id, member_id, target))
        self._records.append(ShareGroupTargetAssignmentMetadata(group.group_id, epoch, now_ms))
        return assignment[updated.member_id], epoch

    def _spec(self, members: Mapping[str, ShareMember], updated: ShareMember) -> GroupSpec:
        """The input of the assignor. Members with equal subscriptions share one set of topic ids."""
        group = self._group
        shared: dict[frozenset[str], frozenset[UUID]] = {}
        specs: dict[str, MemberSpec] = {}
        for member_id, member in members.items():
            topic_ids = shared.get(member.topic_names)
            if topic_ids is None:
                topic_ids = shared[member.topic_names] = self._registry.topic_ids(member.topic_names)
            specs[member_id] = MemberSpec(topic_ids, group.targets.get(member_id, NO_ASSIGNMENT))
        return GroupSpec(specs, group.view_after(updated).is_homogeneous(len(members)))

    def _assignable(self, updated: ShareMember) -> Assignment:
        """The initialized partitions of the topics that the group will be subscribed to."""
        topic_ids = self._registry.topic_ids(self._group.view_after(updated).topics)
        return of_topics(self._group.known_states.initialized, topic_ids)[0]

    def _reconcile(
        self, updated: ShareMember, target: Assignment, target_epoch: int, *, names_changed: bool
    ) -> ShareMember:
        """Take the member to its target, as far as it subscribes to the topics. Returns the same object if nothing changes."""
        if updated.epoch == target_epoch and not names_changed:
            return updated
        assigned = of_topics(target, self._registry.topic_ids(updated.topic_names))[0]
        changes: dict[str, object] = {"assigned": assigned}
        if updated.epoch != target_epoch:
            changes |= {"epoch": target_epoch, "previous_epoch": updated.epoch}
        reconciled = msgspec.structs.replace(updated, **changes)
        if reconciled == updated:
            return updated
        self._records.append(current_record(self._group.group_id, reconciled))
        return reconciled

    def _initialization(self, updated: ShareMember, epoch: int) -> Initialization | None:
        """Note the partitions of subscribed topics whose state nobody has begun to make, or for too long."""
        group, image = self._group, self._registry.context.image
        if not self._records and _is_settled(self._registry, group):
            return None
        states = group.known_states
        retry_ms = self._registry.config.group_share_initialize_retry_interval_ms
        is_waiting = self._now_ms - group.initializing_since_ms < retry_ms
        is_complete = True
        missing: dict[UUID, tuple[int, ...]] = {}
        for name in sorted(group.view_after(updated).topics):
            topic = image.topic(name)
            if topic is None:
                continue
            topic_id, count = topic.topic_id, topic.partition_count
            known = states.initialized.get(topic_id, ())
            if len(known) == count:
                continue
            is_complete = False
            if is_waiting:
                known += states.initializing.get(topic_id, ())
            absent = set(range(count)).difference(known)
            if absent:
                missing[topic_id] = tuple(sorted(absent))
        if not missing:
            if not self._records and is_complete:
                group.settled = (group.states.get(), epoch, image.version)
            return None
        self._records.append(states.initializing_too(missing, image).record(group.group_id))
        group.initializing_since_ms = self._now_ms
        added, new = of_topics(missing, states.initialized.keys())
        return Initialization(group.group_id, epoch, new, added)


def _fenced(reason: str) -> CoordinatorError:
    message = f"{reason} The member must abandon all its partitions and rejoin."
    return CoordinatorError(ErrorCode.FENCED_MEMBER_EPOCH, message)


def _assignment(assignment: Assignment) -> m.ShareGroupHeartbeatResponseAssignment:
    return m.ShareGroupHeartbeatResponseAssignment(
        topic_partitions=entries_of(
            assignment,
            lambda topic_id, partitions: m.ShareGroupHeartbeatResponseTopicPartitions(
                topic_id=topic_id, partitions=partitions
            ),
        )
    )
