"""The kinds of groups that this coordinator has: one entry each. Everything else knows `kohort.group.groups` only."""

from kohort.group.classic.kind import CLASSIC_KIND
from kohort.group.kind import GroupKind

KINDS: tuple[GroupKind, ...] = (CLASSIC_KIND,)
"""The first that has `make_group` makes the groups that commits of unknown groups create."""
