"""
DeleteGroups (42), versions 0 to 2: an empty group goes, with all its offsets and those that are still in transactions.

Source: Kafka GroupCoordinatorShard.deleteGroups.
"""

from collections.abc import Sequence

from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.registry import GroupRegistry
from kohort.group.classic.states import DEAD, EMPTY
from kohort.group.offsets.deletion import offset_tombstones
from kohort.group.offsets.offsets import Offsets
from kohort.group.records import GroupRecord, GroupTombstone
from kohort.machine.shard import Result
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

DeleteGroupResults = tuple[m.DeleteGroupsResponseDeletableGroupResult, ...]


def delete_groups(
    registry: GroupRegistry, offsets: Offsets, group_ids: Sequence[str]
) -> Result[GroupRecord, DeleteGroupResults]:
    """Each group by itself; the records of all of them are one batch."""
    records: list[GroupRecord] = []
    results: list[m.DeleteGroupsResponseDeletableGroupResult] = []
    for group_id in group_ids:
        code = _refusal(registry.groups.get(group_id))
        if code is ErrorCode.NONE:
            records += offset_tombstones(offsets, group_id)
            records.append(GroupTombstone(group_id))
        results.append(m.DeleteGroupsResponseDeletableGroupResult(group_id=group_id, error_code=int(code)))
    return Result(records, tuple(results))


def _refusal(group: ClassicGroup | None) -> ErrorCode:
    if group is None or group.state is DEAD:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is EMPTY else ErrorCode.NON_EMPTY_GROUP
