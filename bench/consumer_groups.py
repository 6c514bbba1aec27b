"""
Consumer groups (KIP-848) in a closed loop: `python -m bench.consumer_groups [--members 1000] [--partitions 10000]`.

All members of one group join at the same time. Each sends its next heartbeat as soon as the last one is answered, revokes what
it is told to revoke, and takes over what it is assigned, until every partition is assigned evenly and the group is Stable. Then
one member leaves, and the others settle again. The figures are seconds and heartbeats, and the longest wait of a bystander
(`bench.load.bystander`).
"""

import argparse
import json
import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple
from uuid import UUID

from bench.load.bystander import bystander
from bench.load.client import decode, open_socket, request_frame, send, send_all, send_until_ready
from bench.load.requests import SESSION_TIMEOUT_MS, create_topic
from bench.servers.rivals import Rival, fresh, present
from kohort.wire import messages
from kohort.wire.apis import ApiKey

HEARTBEAT: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0)
DESCRIBE: Final = (ApiKey.CONSUMER_GROUP_DESCRIBE, 0)
CONNECTIONS: Final = 64
SECONDS_MAX: Final = 120
GROUP: Final = "bench-closed-loop"
TOPICS: Final = tuple(f"bench-closed-loop-{number}" for number in range(10))


class Settled(NamedTuple):
    """From the first change until the group was Stable."""

    seconds: float
    heartbeats: int


class Figures(NamedTuple):
    """Of one server."""

    rival: str
    members: int
    partitions: int
    joined: Settled
    left: Settled
    stall_ms: float


class Member:
    """A client that follows the protocol."""

    __slots__ = ("epoch", "member_id", "owned", "tells")

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID | None, tuple[int, ...]] = {}
        self.tells = True

    def frame(self) -> bytes:
        """The next heartbeat: what the member owns only if that changed."""
        owned = [
            messages.ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in self.owned.items()
        ]
        is_first = self.epoch == 0
        request = messages.ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS if is_first else -1,
            subscribed_topic_names=list(TOPICS) if is_first else None,
            topic_partitions=[] if is_first else owned if self.tells else None,
        )
        return request_frame(*HEARTBEAT, request)

    def take(self, answer: bytes) -> None:
        """
        Raises:
            RuntimeError: the heartbeat was refused.
        """
        response = decode(*HEARTBEAT, answer)
        if response.error_code:
            raise RuntimeError(f"a heartbeat was refused with code {response.error_code}: {response.error_message}")
        self.epoch = response.member_epoch
        self.tells = response.assignment is not None
        if response.assignment is not None:
            self.owned = {it.topic_id: tuple(it.partitions) for it in response.assignment.topic_partitions}

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))


def measure(rival: Rival, members: int, partitions: int) -> Figures:
    with fresh(rival, "os") as running, ExitStack() as opened:
        sockets = [opened.enter_context(open_socket(running.port)) for _ in range(CONNECTIONS)]
        for topic in TOPICS:
            create_topic(sockets[0], topic, partitions // len(TOPICS))
        find = messages.FindCoordinatorRequest(coordinator_keys=[GROUP])
        send_until_ready(
            sockets[0], ApiKey.FIND_COORDINATOR, 4, find, lambda found: int(found.coordinators[0].error_code)
        )
        with bystander(running.port) as wait:
            group = [Member(f"member-{number:05}") for number in range(members)]
            joined = settle(sockets, group, partitions)
            leave = messages.ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=group[0].member_id, member_epoch=-1
            )
            send(sockets[0], *HEARTBEAT, leave)
            left = settle(sockets, group[1:], partitions)
        return Figures(rival.name, members, partitions, joined, left, 1_000 * wait.seconds)


def settle(sockets: Sequence[socket.socket], members: Sequence[Member], partitions: int) -> Settled:
    """
    Send heartbeats until the members own all partitions evenly and the group is Stable.

    Raises:
        RuntimeError: it takes too long.
    """
    begun, heartbeats = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS_MAX:
        for low in range(0, len(members), len(sockets)):
            some = members[low : low + len(sockets)]
            for member, answer in zip(some, send_all(sockets, [it.frame() for it in some]), strict=True):
                member.take(answer)
        heartbeats += len(members)
        counts = [member.partitions for member in members]
        if sum(counts) == partitions and max(counts) - min(counts) <= 1 and _is_stable(sockets[0]):
            return Settled(time.perf_counter() - begun, heartbeats)
    raise RuntimeError(f"the group is not Stable after {SECONDS_MAX} s and {heartbeats} heartbeats")


def _is_stable(connection: socket.socket) -> bool:
    request = messages.ConsumerGroupDescribeRequest(group_ids=[GROUP])
    described: Any = send(connection, *DESCRIBE, request)
    return bool(described.groups[0].group_state == "Stable")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rivals", default="kohort,kfake", help="servers to measure, by name (default: kohort,kfake)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    names = options.rivals.split(",")
    for rival in present(names, lambda name, reason: print(f"{name} is skipped: {reason}")):
        found = measure(rival, options.members, options.partitions)
        if options.json:
            print(json.dumps(found._asdict()))
            continue
        print(f"{found.rival}: {found.members:,} members, {found.partitions:,} partitions")
        for title, settled in (("joined", found.joined), ("one left", found.left)):
            each = settled.heartbeats / found.members
            print(f"  {title}: {settled.seconds:.2f} s, {settled.heartbeats:,} heartbeats ({each:.1f} a member)")
        print(f"  longest wait of a bystander: {found.stall_ms:.0f} ms")


if __name__ == "__main__":
    main()
