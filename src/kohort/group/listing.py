"""
ListGroups (16), versions 0 to 5. 4 filters by state (KIP-518), 5 by type (KIP-848).

Source: Kafka GroupMetadataManager.listGroups.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from kohort.group.context import GroupContext
from kohort.machine.gradual import HANDLER_STEP, LOOK_STEP, chunks
from kohort.wire import messages as m

Listed: TypeAlias = list[m.ListGroupsResponseListedGroup]


class GroupFilter(NamedTuple):
    """The conditions of a ListGroups request. An empty one passes every group, an unknown value none."""

    states: Collection[str]
    types: Collection[str]


def filter_of(request: m.ListGroupsRequest) -> Generator[None, None, GroupFilter]:
    """Read the filter of a request, in steps."""
    wanted_states: set[str] = set()
    for states in chunks(request.states_filter, LOOK_STEP):
        # Kafka trims names of states, but not of types.
        wanted_states.update(state.strip().lower() for state in states)
        if len(states) == LOOK_STEP:
            yield
    wanted_types: set[str] = set()
    for types in chunks(request.types_filter, LOOK_STEP):
        wanted_types.update(type_.lower() for type_ in types)
        if len(types) == LOOK_STEP:
            yield
    return GroupFilter(wanted_states, wanted_types)


def begin_listing(
    context: GroupContext, wanted: GroupFilter, *, committed_offset: int
) -> tuple[int, Listed, Sequence[Sequence[str]]]:
    """
    Return the number of groups in a shard and the list of those that pass the filter. Of a shard with many groups none is
    listed yet: then the third value has all ids in pieces, for `list_groups`.
    """
    group_ids = context.groups.keys_at(committed_offset)
    if len(group_ids) <= HANDLER_STEP:
        return len(group_ids), list_groups(context, wanted, group_ids, committed_offset=committed_offset), ()
    return len(group_ids), [], list(chunks(group_ids, HANDLER_STEP))


def list_groups(
    context: GroupContext, wanted: GroupFilter, group_ids: Iterable[str], *, committed_offset: int
) -> Listed:
    """List those of the groups that exist and pass the filter."""
    states, types = wanted
    listed = []
    get = context.groups.getter_at(committed_offset)
    for group_id in group_ids:
        group = get(group_id)
        if group is None:
            continue
        state = group.state_name_at(committed_offset)
        if (not states or state.lower() in states) and (not types or group.kind in types):
            listed.append(
                m.ListGroupsResponseListedGroup(
                    group_id=group_id,
                    protocol_type=group.listed_protocol_type,
                    group_state=state,
                    group_type=group.kind,
                )
            )
    return listed
