"""
The hour of the demonstration, in virtual time: a member dies and comes back, another one meets a record that it cannot read, a
group loses its last member, and a producer leaves a transaction that no coordinator ends.
"""

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.configs.definitions import BrokerConfig
from kohort.cli.demo.clients import Clients, Member
from kohort.cli.serve_settings import configs_for_tests
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire.apis import DEFAULT_RELEASE

MINUTES: Final = 60
_STEP_SECONDS: Final = 20
"""Time between two heartbeats; a session has 45 s."""
_RECORDS: Final = 5
"""Records a minute and partition."""
_ORDERS, _PAYMENTS = "orders", "payments"
_SETTLEMENT: Final = "settlement"
_PARTITIONS: Final = 3
_SETTLING_TURNS: Final = 3
_STUCK_PARTITION: Final = 2

_SETTLED, _KILLED, _BACK, _OPENED, _STUCK, _LEFT = 5, 12, 18, 25, 30, 40
"""Minutes of the story."""
TOLD: Final = {
    0: "billing-1 and billing-2 share the partitions of orders; audit-1 reads orders, ledger-1 payments",
    _KILLED: "billing-2 is killed: its session of 45 s runs out",
    _BACK: "billing-2 is started again",
    _OPENED: "settlement writes to payments in a transaction that its coordinator does not know",
    _STUCK: f"billing meets an order that it cannot read, in orders-{_STUCK_PARTITION}",
    _LEFT: "audit-1 is stopped, and nobody starts it again",
}
"""The events, by the minute."""


class Told(NamedTuple):
    """A line of the story."""

    at_ms: int
    what: str


async def play(data_dir: Path, end_ms: int) -> list[Told]:
    """Let an hour pass that ends at `end_ms`, with its logs in a directory, and return what happened."""
    begin_ms = end_ms - MINUTES * 60_000
    settings = Settings(
        port=0,
        data_dir=data_dir,
        flush="os",
        config=BrokerConfig.load(
            defaults={
                **configs_for_tests(DEFAULT_RELEASE),
                # As in a cluster before KIP-890: a leader takes records of a transaction that the coordinator does not know.
                "transaction.partition.verification.enable": "false",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "share.coordinator.state.topic.num.partitions": "1",
            }
        ),
        makes_internal_topics=True,
        virtual_time=True,
        virtual_from_ms=begin_ms,
    )
    node = Node(settings, asyncio.get_running_loop())
    await node.start()
    try:
        await _Hour(node).pass_()
    finally:
        await node.stop()
    return [Told(begin_ms + minute * 60_000, what) for minute, what in TOLD.items()]


class _Hour:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._clients = Clients(node)
        self._stuck: dict[str, dict[int, int]] = {"billing": {}, "audit": {}, "ledger": {}}
        self._members: dict[str, Member] = {}

    async def pass_(self) -> None:
        await self._clients.create(_ORDERS, _PARTITIONS)
        await self._clients.create(_PAYMENTS, 1)
        for name, topic in (
            ("billing-1", _ORDERS),
            ("billing-2", _ORDERS),
            ("audit-1", _ORDERS),
            ("ledger-1", _PAYMENTS),
        ):
            self._join(name, topic)
        for minute in range(MINUTES):
            await self._produce(minute)
            await self._happens(minute)
            for _ in range(60 // _STEP_SECONDS):
                for member in self._members.values():
                    await member.heartbeat()
                await self._advance(_STEP_SECONDS * 1_000)
            for member in self._members.values():
                await member.commit(self._stuck[member.group])

    def _join(self, name: str, topic: str) -> None:
        self._members[name] = Member(self._clients, name.partition("-")[0], name, topic)

    async def _produce(self, minute: int) -> None:
        for partition in range(_PARTITIONS):
            await self._clients.produce(_ORDERS, partition, [f"order {minute}.{n}" for n in range(_RECORDS)])
        await self._clients.produce(_PAYMENTS, 0, [f"payment {minute}"])

    async def _happens(self, minute: int) -> None:
        if minute == _SETTLED:
            await self._clients.transact(_SETTLEMENT, _PAYMENTS, 0, ["payment"])
        elif minute == _KILLED:
            del self._members["billing-2"]
        elif minute == _BACK:
            self._join("billing-2", _ORDERS)
        elif minute == _OPENED:
            producer = await self._clients.new_producer(_SETTLEMENT)
            self._stuck["ledger"][0] = await self._clients.produce(
                _PAYMENTS, 0, ["payment"], producer=producer, transactional_id=_SETTLEMENT
            )
        elif minute == _STUCK:
            self._stuck["billing"][_STUCK_PARTITION] = self._clients.ends[_ORDERS, _STUCK_PARTITION] - 1
        elif minute == _LEFT:
            await self._members.pop("audit-1").leave()

    async def _advance(self, duration_ms: int) -> None:
        time = self._node.virtual_time
        assert time is not None
        time.run_to(time.clock.now_ms() + duration_ms)
        for _ in range(_SETTLING_TURNS):
            await asyncio.sleep(0)
