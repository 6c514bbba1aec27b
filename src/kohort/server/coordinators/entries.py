"""
The coordinators of every node: what a node knows of each before its room is imported.

The first request of an API, or the first partition of the topic, imports the room: 20 ms for groups, 5 ms for the others. A
start with partitions of the topic does so before it is ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kohort.broker.broker import Broker
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.group_configs import check_broker
from kohort.model.ids import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from kohort.server.coordinators.hosted_coordinator import CoordinatorEntry, codec_of
from kohort.wire.apis import ApiKey

if TYPE_CHECKING:
    from kohort.server.coordinators.hosted_coordinator import Coordinator

ASSIGNORS: Final = "group.consumer.assignors"


def _group(broker: Broker) -> Coordinator[Any, Any]:
    from kohort.server.coordinators.group_coordinator import group_coordinator

    return group_coordinator(broker)


def _check_groups(config: BrokerConfig) -> None:
    check_broker(config)
    codec_of(config, "offsets.topic.compression.codec")
    if ASSIGNORS in config.explicit:
        from kohort.server.coordinators.assignors import load_assignors

        load_assignors(config.get_list(ASSIGNORS))


def _transactions(broker: Broker) -> Coordinator[Any, Any]:
    from kohort.server.coordinators.transaction_coordinator import transaction_coordinator

    return transaction_coordinator(broker)


def _shares(broker: Broker) -> Coordinator[Any, Any]:
    from kohort.server.coordinators.share_coordinator import share_coordinator

    return share_coordinator(broker)


def _check_shares(config: BrokerConfig) -> None:
    codec_of(config, "share.coordinator.state.topic.compression.codec")


GROUPS: Final = CoordinatorEntry(
    topic=CONSUMER_OFFSETS,
    make=_group,
    check=_check_groups,
    apis=frozenset(
        {
            ApiKey.OFFSET_COMMIT,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.OFFSET_DELETE,
            ApiKey.LIST_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.JOIN_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            ApiKey.SHARE_GROUP_HEARTBEAT,
            ApiKey.SHARE_GROUP_DESCRIBE,
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        }
    ),
)
TRANSACTIONS: Final = CoordinatorEntry(
    topic=TRANSACTION_STATE,
    make=_transactions,
    has_verification=True,
    apis=frozenset(
        {
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.END_TXN,
            ApiKey.DESCRIBE_TRANSACTIONS,
            ApiKey.LIST_TRANSACTIONS,
        }
    ),
)
SHARES: Final = CoordinatorEntry(
    topic=SHARE_GROUP_STATE,
    make=_shares,
    check=_check_shares,
    has_persister=True,
    apis=frozenset(
        {
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        }
    ),
)

COORDINATORS: Final[tuple[CoordinatorEntry, ...]] = (GROUPS, TRANSACTIONS, SHARES)
"""The coordinators of every node, one entry each."""
