"""
DeleteGroups (42), versions 0 to 3: delete empty groups with their offsets, those of open transactions included.

3 adds a message, which Kafka leaves null unless a topology description cannot be deleted: there is none here.

Source: Kafka GroupCoordinatorShard.deleteGroups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from kohort.group.context import GroupContext
from kohort.group.events import GroupDeleted
from kohort.group.offsets.deletion import offset_tombstones
from kohort.group.records import GroupRecord
from kohort.machine.shard import Result
from kohort.model.errors import CoordinatorError
from kohort.wire import messages as m

DeleteGroupResults: TypeAlias = tuple[m.DeleteGroupsResponseDeletableGroupResult, ...]


def delete_groups(context: GroupContext, group_ids: Sequence[str]) -> Result[GroupRecord, DeleteGroupResults]:
    """Delete each group that allows it; the records of all of them are one batch."""
    records: list[GroupRecord] = []
    results: list[m.DeleteGroupsResponseDeletableGroupResult] = []
    deleted: list[GroupDeleted] = []
    for group_id in group_ids:
        code = 0
        try:
            group = context.get(group_id)
            group.validate_delete()
        except CoordinatorError as exc:
            code = int(exc.code)
        else:
            offsets = offset_tombstones(context.offsets, group_id)
            records += offsets
            records += group.tombstones()
            deleted.append(GroupDeleted(group_id, len(offsets), "DeleteGroups"))
        results.append(m.DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=code))
    return Result(records, tuple(results), effects=deleted)
