"""The operations of the control API that bring about events, one path each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from kohort.control.kit import Kit
from kohort.control.web.api import Operation


class BrokerEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        broker: its id.
    """

    broker: int


class CoordinatorEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """
    The coordinator of a group or of a transactional id.

    Attributes:
        broker: where it moves; another one that runs without it.
    """

    group: str | None = None
    transactional_id: str | None = None
    broker: int | None = None


class MemberEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        member: a member id, an instance id or a client id.
    """

    group: str
    member: str


class GroupEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group."""

    group: str


class ProducerEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        timeout: of the next transaction, in seconds.
    """

    transactional_id: str
    timeout: float = 60.0


class PartitionEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A partition; 0 by default."""

    topic: str
    partition: int = 0


class LeaderEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    Attributes:
        broker: the new leader; another one that runs without it.
    """

    topic: str
    partition: int = 0
    broker: int | None = None


class NoEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing to say."""


class EventResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of an event; fields that the event does not have are left out."""

    event: str
    broker: int | None = None
    topic: str | None = None
    partition: int | None = None
    partitions: int | None = None
    member_id: str | None = None
    leader_epoch: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    offset: int | None = None


_ABOUT: Final[dict[str, str]] = {
    "stop_broker": "Stop a broker: its leaders move, its connections close.",
    "kill_broker": "Stop a broker without a word: its connections are reset.",
    "start_broker": "Start a broker that was stopped, at the same port.",
    "restart_broker": "Kill a broker and start it again.",
    "unload_coordinator": "Unload a coordinator: NOT_COORDINATOR until load_coordinator.",
    "load_coordinator": "Load a coordinator that was unloaded.",
    "move_coordinator": "Move a coordinator to another broker; with one broker it is loaded again.",
    "expire_member": "Let the session of a member end now.",
    "remove_member": "Remove a member as an administrator does.",
    "force_rebalance": "Let the members of a classic group join again, or raise the epoch of a consumer group.",
    "fence_producer": "Give a transactional id a new epoch; the producer that has it is fenced.",
    "hang_transaction": "Write a record of a transaction that nobody ends.",
    "raise_leader_epoch": "Begin a new leader epoch of a partition.",
    "change_leader": "Give a partition another leader.",
    "remove_leader": "Leave a partition without a leader, until change_leader.",
    "take_offline": "Let the log of a partition fail, until bring_online.",
    "bring_online": "End take_offline.",
    "fill_disk": "Let the logs of all partitions in use fail, until empty_disk.",
    "empty_disk": "End fill_disk, and every take_offline.",
}


def event_operations(kit: Kit) -> list[Operation]:
    """Events."""
    events = kit.events

    async def stop_broker(body: BrokerEvent) -> EventResult:
        await events.stop_broker(body.broker)
        return EventResult(event="stop_broker", broker=body.broker)

    async def kill_broker(body: BrokerEvent) -> EventResult:
        await events.stop_broker(body.broker, is_killed=True)
        return EventResult(event="kill_broker", broker=body.broker)

    async def start_broker(body: BrokerEvent) -> EventResult:
        await events.start_broker(body.broker)
        return EventResult(event="start_broker", broker=body.broker)

    async def restart_broker(body: BrokerEvent) -> EventResult:
        await events.stop_broker(body.broker, is_killed=True)
        await events.start_broker(body.broker)
        return EventResult(event="restart_broker", broker=body.broker)

    async def unload_coordinator(body: CoordinatorEvent) -> EventResult:
        topic, partition = events.unload_coordinator(body.group, body.transactional_id)
        return EventResult(event="unload_coordinator", topic=topic, partition=partition)

    async def load_coordinator(body: CoordinatorEvent) -> EventResult:
        topic, partition = await events.load_coordinator(body.group, body.transactional_id)
        return EventResult(event="load_coordinator", topic=topic, partition=partition)

    async def move_coordinator(body: CoordinatorEvent) -> EventResult:
        broker = await events.move_coordinator(body.group, body.transactional_id, body.broker)
        return EventResult(event="move_coordinator", broker=broker)

    async def expire_member(body: MemberEvent) -> EventResult:
        return EventResult(event="expire_member", member_id=await events.expire_member(body.group, body.member))

    async def remove_member(body: MemberEvent) -> EventResult:
        return EventResult(event="remove_member", member_id=await events.remove_member(body.group, body.member))

    async def force_rebalance(body: GroupEvent) -> EventResult:
        await events.force_rebalance(body.group)
        return EventResult(event="force_rebalance")

    async def fence_producer(body: ProducerEvent) -> EventResult:
        producer_id, epoch = await events.fence_producer(body.transactional_id, round(body.timeout * 1_000))
        return EventResult(event="fence_producer", producer_id=producer_id, producer_epoch=epoch)

    async def hang_transaction(body: PartitionEvent) -> EventResult:
        producer_id, offset = await events.hang_transaction(body.topic, body.partition)
        return EventResult(event="hang_transaction", producer_id=producer_id, producer_epoch=0, offset=offset)

    async def raise_leader_epoch(body: PartitionEvent) -> EventResult:
        epoch = events.raise_leader_epoch(body.topic, body.partition)
        return EventResult(event="raise_leader_epoch", leader_epoch=epoch)

    async def change_leader(body: LeaderEvent) -> EventResult:
        broker = await events.change_leader(body.topic, body.partition, body.broker)
        return EventResult(event="change_leader", broker=broker)

    async def remove_leader(body: PartitionEvent) -> EventResult:
        await events.change_leader(body.topic, body.partition, -1)
        return EventResult(event="remove_leader", topic=body.topic, partition=body.partition)

    async def take_offline(body: PartitionEvent) -> EventResult:
        events.take_offline(body.topic, body.partition)
        return EventResult(event="take_offline", topic=body.topic, partition=body.partition)

    async def bring_online(body: PartitionEvent) -> EventResult:
        events.bring_online(body.topic, body.partition)
        return EventResult(event="bring_online", topic=body.topic, partition=body.partition)

    async def fill_disk(body: NoEvent) -> EventResult:  # noqa: ARG001 -- all operations have a body
        return EventResult(event="fill_disk", partitions=events.fill_disk())

    async def empty_disk(body: NoEvent) -> EventResult:  # noqa: ARG001 -- as above
        return EventResult(event="empty_disk", partitions=events.empty_disk())

    every: list[tuple[Callable[..., Any], Any]] = [
        (stop_broker, BrokerEvent),
        (kill_broker, BrokerEvent),
        (start_broker, BrokerEvent),
        (restart_broker, BrokerEvent),
        (unload_coordinator, CoordinatorEvent),
        (load_coordinator, CoordinatorEvent),
        (move_coordinator, CoordinatorEvent),
        (expire_member, MemberEvent),
        (remove_member, MemberEvent),
        (force_rebalance, GroupEvent),
        (fence_producer, ProducerEvent),
        (hang_transaction, PartitionEvent),
        (raise_leader_epoch, PartitionEvent),
        (change_leader, LeaderEvent),
        (remove_leader, PartitionEvent),
        (take_offline, PartitionEvent),
        (bring_online, PartitionEvent),
        (fill_disk, NoEvent),
        (empty_disk, NoEvent),
    ]
    return [
        Operation(
            "POST",
            f"/events/{run.__name__}",
            _ABOUT[run.__name__],
            run,
            body,
            EventResult,
            problems=(404, 409, 422, 503),
            is_body_optional=body is NoEvent,
        )
        for run, body in every
    ]
