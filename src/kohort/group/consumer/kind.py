"""The entry of consumer groups in the table of kinds."""

from kohort.group.consumer.apis import ConsumerApis
from kohort.group.consumer.manager import ConsumerGroupManager
from kohort.group.consumer.states import ConsumerGroupState
from kohort.group.groups import CONSUMER
from kohort.group.kind import GroupKind

CONSUMER_KIND = GroupKind(
    name=CONSUMER,
    states=tuple(state.value for state in ConsumerGroupState),
    key_types=(3, 4, 5, 6, 7, 8, 16),
    make_manager=ConsumerGroupManager,
    make_apis=ConsumerApis,
)
