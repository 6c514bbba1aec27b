"""
ListGroups (16), versions 0 to 5. 4 filters by state (KIP-518), 5 by type (KIP-848).

Source: Kafka GroupMetadataManager.listGroups.
"""

from collections.abc import Iterator, Sequence

from kohort.group.classic.group import ClassicGroup
from kohort.machine.timeline import TimelineDict
from kohort.wire import messages as m

CLASSIC_TYPE = "classic"


def list_groups(
    groups: TimelineDict[str, ClassicGroup],
    *,
    states: Sequence[str],
    types: Sequence[str],
    committed_offset: int,
) -> Iterator[m.ListGroupsResponseListedGroup]:
    """The groups that pass both filters; an empty filter lets everything pass, an unknown value nothing."""
    # Kafka trims names of states, but not of types.
    wanted_states = {state.strip().lower() for state in states}
    if types and CLASSIC_TYPE not in {type_.lower() for type_ in types}:
        return
    for group_id, group in groups.items_at(committed_offset):
        state = group.state.value
        if not states or state.lower() in wanted_states:
            yield m.ListGroupsResponseListedGroup(
                group_id=group_id,
                protocol_type=group.protocol_type or "",
                group_state=state,
                group_type=CLASSIC_TYPE,
            )
