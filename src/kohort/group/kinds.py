"""The kinds of groups of this coordinator: one entry each. Other modules know `kohort.group.groups` only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from kohort.group.classic.apis import ClassicApis
from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.manager import ClassicGroupManager
from kohort.group.classic.rebalance import complete_held
from kohort.group.classic.rebalance import force_rebalance as force_classic_rebalance
from kohort.group.classic.states import DEAD_NAME, ClassicGroupState
from kohort.group.consumer.apis import ConsumerApis
from kohort.group.consumer.manager import ConsumerGroupManager
from kohort.group.consumer.member import ConsumerGroupState
from kohort.group.consumer.removal import force_rebalance as force_consumer_rebalance
from kohort.group.context import GroupContext, HasContext
from kohort.group.front import GroupFront
from kohort.group.groups import CLASSIC, CONSUMER, SHARE, Group, GroupManager
from kohort.group.records import GroupRecord, GroupRecordSerde
from kohort.group.share.apis import ShareApis
from kohort.group.share.manager import ShareGroupManager
from kohort.group.share.member import ShareGroupState
from kohort.machine.shard import Result
from kohort.machine.timeline import SnapshotRegistry
from kohort.model.errors import ErrorCode
from kohort.wire.apis import ApiKey


class GroupApis(Protocol):
    """The APIs of one kind on one node."""

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        """By API, a method `(request, context, reply)` as `kohort.group.service` describes."""


@runtime_checkable
class PreparesDeletion(Protocol):
    """The APIs of a kind of groups that have something outside of the coordinator's log."""

    def prepare_deletion(
        self, partition: int, group_ids: Sequence[str], ready: Callable[[Mapping[str, ErrorCode]], None], /
    ) -> bool:
        """
        Delete what the groups of this kind have outside.

        Args:
            partition: of `__consumer_offsets`, where the groups are.
            ready: is called, now or later, with the groups that cannot be deleted.

        Returns:
            False if none of the groups is of this kind; then `ready` is not called.
        """


class GroupKind(NamedTuple):
    """
    A kind of group.

    Attributes:
        states: the names of the states, for metrics.
        key_types: of its records in `__consumer_offsets`.
        make_group: makes a group that only keeps offsets; None if a commit cannot create a group of this kind.
        force_rebalance: an operation that begins a rebalance of a group, for tests of clients.
        complete_held: one that completes a rebalance that was held; None if a heartbeat does.
    """

    name: str
    states: Sequence[str]
    key_types: Sequence[int]
    make_manager: Callable[[GroupContext], GroupManager]
    make_apis: Callable[[GroupFront], GroupApis]
    make_group: Callable[[str, SnapshotRegistry], Group] | None = None
    force_rebalance: Callable[[HasContext, int, str], Result[GroupRecord, ErrorCode]] | None = None
    complete_held: Callable[[HasContext, int, str], Result[GroupRecord, ErrorCode]] | None = None


KINDS: tuple[GroupKind, ...] = (
    GroupKind(
        name=CLASSIC,
        states=(*(state.value for state in ClassicGroupState), DEAD_NAME),
        key_types=(2,),
        make_manager=ClassicGroupManager,
        make_apis=ClassicApis,
        make_group=ClassicGroup,
        force_rebalance=force_classic_rebalance,
        complete_held=complete_held,
    ),
    GroupKind(
        name=CONSUMER,
        states=tuple(state.value for state in ConsumerGroupState),
        key_types=(3, 4, 5, 6, 7, 8, 16),
        make_manager=ConsumerGroupManager,
        make_apis=ConsumerApis,
        force_rebalance=force_consumer_rebalance,
    ),
    GroupKind(
        name=SHARE,
        states=tuple(state.value for state in ShareGroupState),
        key_types=(10, 11, 12, 13, 14, 15),
        make_manager=ShareGroupManager,
        make_apis=ShareApis,
    ),
)
"""The first that has `make_group` makes the groups that commits of unknown groups create."""


def record_serde(kinds: Sequence[GroupKind] = KINDS) -> GroupRecordSerde:
    """The serde of offsets and of the records of these kinds."""
    return GroupRecordSerde([key_type for kind in kinds for key_type in kind.key_types])
