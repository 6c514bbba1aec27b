"""The shape of an entry in the table of kinds (`kohort.group.kinds`)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from kohort.group.context import GroupContext
from kohort.group.front import GroupFront
from kohort.group.groups import Group, GroupManager
from kohort.machine.timeline import SnapshotRegistry
from kohort.wire.apis import ApiKey


class GroupApis(Protocol):
    """The APIs of one kind on one node."""

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        """By API, a method `(request, context, reply)` as `kohort.group.service` describes."""


class GroupKind(NamedTuple):
    """
    A kind of group.

    Attributes:
        states: the names of the states, for metrics.
        key_types: of its records in `__consumer_offsets`.
        make_group: makes a group that only keeps offsets; None if a commit cannot create a group of this kind.
    """

    name: str
    states: Sequence[str]
    key_types: Sequence[int]
    make_manager: Callable[[GroupContext], GroupManager]
    make_apis: Callable[[GroupFront], GroupApis]
    make_group: Callable[[str, SnapshotRegistry], Group] | None = None
