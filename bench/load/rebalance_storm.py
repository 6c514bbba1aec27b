"""
Rebalance storm: all members of a classic group rejoin at once, and again as soon as all have their assignments.

Each member changes its metadata, so the first JoinGroup starts a rebalance. The rebalance ends with the last SyncGroup
response. Latency is that of whole rebalances; requests are JoinGroup and SyncGroup, two a member.
"""

import select
import socket
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from bench.load.client import decode, read_frame, request_frame, send_all_until_ready
from bench.load.closed_loop import STALLED_SECONDS, LoadError, Round, round_of, undisturbed
from bench.load.requests import (
    JOIN_GROUP,
    SYNC_GROUP,
    join_code,
    join_request,
    leave,
    leave_request,
    new_serial,
    sync_request,
)

QUIET_SECONDS: Final = 0.1
GENERATION_MARK: Final = 0x7A5B3C1D
"""Placeholder of the generation in a prepared SyncGroup."""
_ERROR: Final = slice(13, 15)
_GENERATION: Final = slice(15, 19)
"""Position of the error code in JoinGroup 9 and SyncGroup 5 responses: after size, correlation id, tags and throttle time."""


@dataclass(frozen=True, slots=True)
class _Member:
    """
    Attributes:
        joins: two JoinGroup frames with different metadata.
        sync: the SyncGroup frame before and after the generation.
    """

    connection: socket.socket
    joins: tuple[bytes, bytes]
    sync: tuple[bytes, bytes]


class Storm:
    """A group with one member for each connection."""

    def __init__(self, sockets: Sequence[socket.socket], opened: ExitStack) -> None:
        """
        Args:
            opened: receives the callback that makes the members leave.

        Raises:
            LoadError: the members do not reach a common generation.
        """
        group_id = f"bench-storm-{new_serial()}"
        requests = [join_request(group_id, "") for _ in sockets]
        ids = [it.member_id for it in send_all_until_ready(sockets, *JOIN_GROUP, requests, join_code)]
        opened.callback(leave, sockets[:1], [leave_request(group_id, ids)])
        joins = [
            (
                request_frame(*JOIN_GROUP, join_request(group_id, member_id, b"this")),
                request_frame(*JOIN_GROUP, join_request(group_id, member_id, b"that")),
            )
            for member_id in ids
        ]
        leader_id = _gather(sockets, [both[0] for both in joins])
        mark = GENERATION_MARK.to_bytes(4, "big")
        self._members = []
        for connection, member_id, both in zip(sockets, ids, joins, strict=True):
            assigned = ids if member_id == leader_id else []
            frame = request_frame(*SYNC_GROUP, sync_request(group_id, member_id, GENERATION_MARK, assigned))
            before, _, after = frame.partition(mark)
            self._members.append(_Member(connection, both, (before, after)))
        self._which = cycle((1, 0)).__next__
        self._rebalance()

    def run(self, seconds: float) -> Round:
        """
        Run rebalances for `seconds`.

        Raises:
            LoadError: an unexpected error code.
        """
        durations_ns: list[int] = []
        with undisturbed() as cpu_share:
            begun_ns = time.perf_counter_ns()
            while not durations_ns or time.perf_counter_ns() - begun_ns < seconds * 1e9:
                before_ns = time.perf_counter_ns()
                self._rebalance()
                durations_ns.append(time.perf_counter_ns() - before_ns)
            elapsed = (time.perf_counter_ns() - begun_ns) / 1e9
            load_cpu = cpu_share()
        count = len(durations_ns) * len(self._members) * 2
        return round_of(durations_ns, elapsed, load_cpu, requests=count)

    def _rebalance(self) -> None:
        which = self._which()
        for member in self._members:
            member.connection.send(member.joins[which])
        generations = set()
        for member in self._members:
            answer = _answer(member.connection)
            generation = answer[_GENERATION]
            generations.add(generation)
            before, after = member.sync
            member.connection.send(before + generation + after)
        for member in self._members:
            _answer(member.connection)
        if len(generations) != 1:
            raise LoadError(f"members of {len(generations)} generations in one rebalance")


def _answer(connection: socket.socket) -> bytes:
    answer = read_frame(connection)
    if answer[_ERROR] != b"\0\0":
        raise LoadError(f"a member received error code {int.from_bytes(answer[_ERROR], 'big')}")
    return answer


def _gather(sockets: Sequence[socket.socket], joins: Sequence[bytes]) -> str:
    """
    Bring all members into one generation and return the leader's id.

    Early members may be answered before the others join. A member with a response joins again while others wait.
    """
    generations: dict[int, int] = {}
    leader_id = ""
    waiting: set[int] = set()
    deadline = time.monotonic() + STALLED_SECONDS
    while waiting or len(set(generations.values())) != 1:
        for index in set(range(len(sockets))) - waiting:
            sockets[index].sendall(joins[index])
            waiting.add(index)
        for index in _heard(sockets, waiting):
            joined = decode(*JOIN_GROUP, _answer(sockets[index]))
            generations[index], leader_id = joined.generation_id, joined.leader
            waiting.discard(index)
        if time.monotonic() > deadline:
            raise LoadError(f"{len(waiting)} of {len(sockets)} members wait for their group")
    return leader_id


def _heard(sockets: Sequence[socket.socket], waiting: Iterable[int]) -> list[int]:
    """Return the members with a response, when all have one or no more arrive."""
    left, heard = {sockets[index].fileno(): index for index in waiting}, []
    with select.epoll() as epoll:
        for descriptor in left:
            epoll.register(descriptor, select.EPOLLIN)
        while left and (events := epoll.poll(QUIET_SECONDS)):
            for descriptor, _ in events:
                heard.append(left.pop(descriptor))
                epoll.unregister(descriptor)
    return heard
