"""The kinds of groups of this coordinator: one entry each. Other modules know `kohort.group.groups` only."""

from collections.abc import Sequence

from kohort.group.classic.kind import CLASSIC_KIND
from kohort.group.consumer.manager import CONSUMER_KIND
from kohort.group.kind import GroupKind
from kohort.group.records import GroupRecordSerde

KINDS: tuple[GroupKind, ...] = (CLASSIC_KIND, CONSUMER_KIND)
"""The first that has `make_group` makes the groups that commits of unknown groups create."""


def record_serde(kinds: Sequence[GroupKind] = KINDS) -> GroupRecordSerde:
    """The serde of offsets and of the records of these kinds."""
    return GroupRecordSerde([key_type for kind in kinds for key_type in kind.key_types])
