"""Events that a test brings about: what happens to clusters by themselves, at the word of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.partitions.partitions import NOT_OPEN, Partition
from kohort.broker.partitions.replicas import NO_LEADER, PartitionState
from kohort.control.cluster.groups import Groups
from kohort.control.cluster.inside import ELSEWHERE, Inside
from kohort.control.web.problems import Problem, invalid, not_found
from kohort.group.groups import session_key
from kohort.group.kinds import KINDS
from kohort.model.errors import CoordinatorError, ErrorCode, KohortError
from kohort.model.ids import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE, coordinator_partition
from kohort.runtime.runtime import Runtime
from kohort.runtime.states import State
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch

_OFFLINE: Final = "taken offline by a test; POST /events/bring_online ends that"


class Events:
    """The events of one node; each method raises `Problem` if it cannot happen."""

    def __init__(self, node: Node, inside: Inside, groups: Groups) -> None:
        self._node = node
        self._inside = inside
        self._groups = groups

    # -- brokers -----------------------------------------------------------------------------------------------

    async def stop_broker(self, broker: int, *, is_killed: bool = False) -> None:
        """Stop a broker; one that is killed ends its connections before their replies."""
        if is_killed:
            self._node.brokers.abort_connections(broker)
        try:
            await self._node.brokers.stop(broker)
        except KohortError as error:
            raise invalid(str(error)) from None

    async def start_broker(self, broker: int) -> None:
        try:
            await self._node.brokers.start(broker)
        except KohortError as error:
            raise invalid(str(error)) from None

    # -- coordinators ------------------------------------------------------------------------------------------

    def _coordinator(self, group: str | None, transactional_id: str | None) -> tuple[str, int, Runtime[Any]]:
        if (group is None) == (transactional_id is None):
            raise invalid("give a group or a transactional_id")
        topic = CONSUMER_OFFSETS if group is not None else TRANSACTION_STATE
        runtime = self._node.coordinators.runtime(topic)
        if runtime is None or self._inside.broker.catalog.topic(topic) is None:
            raise Problem(503, "not-ready", f"{topic} does not exist yet: no client has looked for its coordinator")
        return topic, coordinator_partition(group or transactional_id or "", runtime.partition_count), runtime

    def unload_coordinator(self, group: str | None, transactional_id: str | None) -> tuple[str, int]:
        topic, index, _ = self._coordinator(group, transactional_id)
        self._node.coordinators.unload_one(topic, index)
        return topic, index

    async def load_coordinator(self, group: str | None, transactional_id: str | None) -> tuple[str, int]:
        topic, index, runtime = self._coordinator(group, transactional_id)
        self._node.coordinators.load_one(topic, index)
        await self._until(lambda: (context := runtime.find(index)) is not None and context.state is not State.LOADING)
        return topic, index

    async def move_coordinator(self, group: str | None, transactional_id: str | None, broker: int | None) -> int:
        """Move a coordinator to another broker; with one broker it is unloaded and loaded again."""
        topic, index, runtime = self._coordinator(group, transactional_id)
        if len(self._inside.running) == 1:
            self._node.coordinators.unload_one(topic, index)
            self._node.coordinators.load_one(topic, index)
            leader = self._inside.running[0]
        else:
            leader = await self.change_leader(topic, index, broker)
        await self._until(lambda: (context := runtime.find(index)) is not None and context.state is State.ACTIVE)
        return leader

    async def _until(self, is_true: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not is_true():
                await asyncio.sleep(0.001)

    # -- groups ------------------------------------------------------------------------------------------------

    async def _member(self, group: str, member: str) -> tuple[str, str]:
        """The kind of a group and the id of a member that is named by its id, its instance or its client."""
        view = await self._groups.view(group, has_offsets=False)
        for each in view.members:
            if member in (each.member_id, each.instance_id, each.client_id):
                return view.kind, each.member_id
        raise not_found("member", member, f" in the group {group!r}, which is {view.state}")

    async def expire_member(self, group: str, member: str) -> str:
        """Let the session of a member end now. A member whose request waits in a classic group stays, as in Kafka."""
        _, member_id = await self._member(group, member)
        _, index, runtime = self._coordinator(group, None)
        context = runtime.find(index)
        if context is None or not context.run_deadline(session_key(group, member_id)):
            raise Problem(409, "no-session", f"the member {member_id!r} of {group!r} has no session that could end")
        return member_id

    async def remove_member(self, group: str, member: str) -> str:
        """Remove a member as an administrator does."""
        kind, member_id = await self._member(group, member)
        if kind not in ("classic", "consumer"):
            raise invalid(f"Kafka has no way to remove a member of a {kind} group; expire it")
        identity = m.LeaveGroupRequestMemberIdentity(member_id=member_id, reason="removed by a test")
        request = m.LeaveGroupRequest(group_id=group, members=[identity])
        answer = await self._inside.ask(ApiKey.LEAVE_GROUP, request, node_id=await self._coordinator_id(group))
        code = answer.error_code or answer.members[0].error_code
        if code:
            raise Problem(422, "refused", f"the coordinator answers {ErrorCode(code).name}", error=ErrorCode(code).name)
        return member_id

    async def _coordinator_id(self, group: str) -> int:
        return (await self._groups.view(group, has_offsets=False)).coordinator

    async def force_rebalance(self, group: str) -> None:
        """Begin a rebalance: members of a classic group join again, the epoch of a consumer group rises."""
        _, index, runtime = self._coordinator(group, None)
        for kind in KINDS:
            if kind.force_rebalance is None:
                continue
            force = kind.force_rebalance
            code = await self._written(runtime, index, lambda shard, now_ms, force=force: force(shard, now_ms, group))
            if code is ErrorCode.NONE:
                return
            if code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise Problem(503, "not-ready", f"the coordinator of {group!r} answers {code.name}")
        raise not_found("classic or consumer group with members", group)

    async def _written(self, runtime: Runtime[Any], index: int, operation: Any) -> ErrorCode:
        answer: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        code = runtime.write(index, operation, answer.set_result, _code_of)
        return await answer if code is None else code

    # -- producers ---------------------------------------------------------------------------------------------

    async def fence_producer(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Give a transactional id a new epoch, as a second producer does; an open transaction is aborted."""
        request = m.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )
        async with asyncio.timeout(30):
            while True:
                answer = await self._asked(ApiKey.INIT_PRODUCER_ID, request)
                code = ErrorCode(answer.error_code)
                if not code:
                    return answer.producer_id, answer.producer_epoch
                if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise Problem(422, "refused", f"the coordinator answers {code.name}", error=code.name)
                await asyncio.sleep(0.005)

    async def _asked(self, api: ApiKey, request: Any) -> Any:
        """The answer of the broker that has the coordinator."""
        for node_id in self._inside.running:
            answer = await self._inside.ask(api, request, node_id=node_id)
            if answer.error_code not in ELSEWHERE:
                return answer
        raise Problem(503, "not-ready", "no broker has the coordinator")

    async def hang_transaction(self, topic: str, partition: int) -> tuple[int, int]:
        """Write a record of a transaction that no coordinator knows: the last stable offset stays before it."""
        broker = self._inside.broker
        found = self._partition(topic, partition)
        producer_id = broker.producer_ids.take()
        if producer_id is None:
            ready: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
            broker.producer_ids.when_available(ready.set_result)
            code = await ready
            producer_id = None if code else broker.producer_ids.take()
        if producer_id is None:
            raise Problem(503, "not-ready", "there is no producer id now")
        batch = build_batch(
            [BatchRecord(None, b"hanging")],
            timestamp_ms=broker.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        end_offset = found.append(batch)
        await self._until(lambda: found.log.high_watermark >= end_offset)
        return producer_id, end_offset - 1

    # -- partitions --------------------------------------------------------------------------------------------

    def _partition(self, topic: str, index: int) -> Partition:
        broker = self._inside.broker
        found = broker.partitions.opened.get(topic, NOT_OPEN).partitions.get(index)
        if found is None:
            found = broker.partitions.open(topic, index)
        if found is None:
            raise not_found("partition", f"{topic}-{index}")
        return found

    def raise_leader_epoch(self, topic: str, partition: int) -> int:
        """Begin a new leader epoch at the same leader."""
        if topic in INTERNAL_TOPICS:
            raise invalid(f"{topic} belongs to a coordinator: use move_coordinator")
        found = self._partition(topic, partition)
        found.begin_epoch(found.leader_epoch + 1)
        return found.leader_epoch

    def take_offline(self, topic: str, partition: int) -> None:
        """Let the log of a partition fail: its clients are answered KAFKA_STORAGE_ERROR, or find no leader."""
        self._partition(topic, partition).log.take_offline(f"{topic}-{partition} is {_OFFLINE}")

    def bring_online(self, topic: str, partition: int) -> None:
        self._partition(topic, partition).log.bring_online()
        if topic in INTERNAL_TOPICS and self._node.coordinators.runtime(topic) is not None:
            self._node.coordinators.load_one(topic, partition)

    def fill_disk(self) -> int:
        """Let the logs of all partitions fail, as with a full disk. Returns their number."""
        opened = [each.topic_partition for each in self._inside.broker.partitions.all_open()]
        for topic, index in opened:
            self.take_offline(topic, index)
        return len(opened)

    def empty_disk(self) -> int:
        """End `fill_disk`, and every `take_offline`."""
        opened = self._inside.broker.partitions.all_open()
        offline = [each.topic_partition for each in opened if each.log.refusal is not None]
        for topic, index in offline:
            self.bring_online(topic, index)
        return len(offline)

    async def change_leader(self, topic: str, partition: int, broker: int | None) -> int:
        """
        Give a partition another leader, in a new epoch.

        Args:
            broker: -1 for none; another one that runs without it.
        """
        found = self._inside.broker.catalog.topic(topic)
        if found is None or not 0 <= partition < found.partition_count:
            raise not_found("partition", f"{topic}-{partition}")
        running = self._inside.running
        state = self._inside.broker.catalog.state(found, partition)
        if broker is None:
            others = [each for each in state.replicas if each != state.leader and each in running]
            others += [each for each in running if each != state.leader and each not in others]
            if not others:
                raise Problem(409, "no-broker", "there is no other broker that runs: serve with --brokers 2 or more")
            broker = others[0]
        elif broker not in (NO_LEADER, *running):
            raise not_found("running broker", str(broker))
        await self._change(found, partition, _led_by(state, broker))
        return broker

    async def _change(self, topic: Topic, index: int, state: PartitionState) -> None:
        catalog = self._inside.broker.catalog
        states = list(catalog.states(topic))
        states[index] = state
        done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        catalog.change(CatalogChange(put=(catalog.with_states(topic, states),)), done.set_result)
        code = await done
        if code:
            raise Problem(503, "not-written", f"the change of the leader was not written: {code.name}")


def _led_by(state: PartitionState, broker: int) -> PartitionState:
    replicas = state.replicas if broker in (NO_LEADER, *state.replicas) else (broker, *state.replicas[1:])
    isr = state.isr if broker == NO_LEADER or broker in state.isr else (broker, *state.isr[1:])
    return msgspec.structs.replace(
        state, replicas=replicas, isr=isr, leader=broker, leader_epoch=state.leader_epoch + 1
    )


def _code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, CoordinatorError) else ErrorCode.UNKNOWN_SERVER_ERROR
