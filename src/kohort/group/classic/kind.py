"""The entry of classic groups in the table of kinds."""

from kohort.group.classic.apis import ClassicApis
from kohort.group.classic.group import ClassicGroup
from kohort.group.classic.manager import ClassicGroupManager
from kohort.group.classic.states import DEAD_NAME, ClassicGroupState
from kohort.group.groups import CLASSIC
from kohort.group.kind import GroupKind

CLASSIC_KIND = GroupKind(
    name=CLASSIC,
    states=(*(state.value for state in ClassicGroupState), DEAD_NAME),
    key_types=(2,),
    make_manager=ClassicGroupManager,
    make_apis=ClassicApis,
    make_group=ClassicGroup,
)
