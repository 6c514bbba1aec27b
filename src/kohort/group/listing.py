"""
ListGroups (16), versions 0 to 5. 4 filters by state (KIP-518), 5 by type (KIP-848).

Source: Kafka GroupMetadataManager.listGroups.
"""

from collections.abc import Iterator

from kohort.group.context import GroupContext
from kohort.wire import messages as m


def list_groups(
    context: GroupContext, request: m.ListGroupsRequest, *, committed_offset: int
) -> Iterator[m.ListGroupsResponseListedGroup]:
    """List the groups that pass both filters. An empty filter passes every group, an unknown value none."""
    # Kafka trims names of states, but not of types.
    states = {state.strip().lower() for state in request.states_filter}
    types = {type_.lower() for type_ in request.types_filter}
    for group_id, group in context.groups.items_at(committed_offset):
        state = group.state_name_at(committed_offset)
        if (not states or state.lower() in states) and (not types or group.kind in types):
            yield m.ListGroupsResponseListedGroup(
                group_id=group_id,
                protocol_type=group.listed_protocol_type,
                group_state=state,
                group_type=group.kind,
            )
