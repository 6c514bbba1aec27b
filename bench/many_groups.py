"""
Many classic groups: all members join, one member of each group leaves, and the time until the groups are stable again.

Each member has its own connection, because its JoinGroup is answered only when all members have joined. JoinGroup and SyncGroup
have version 3, in which a member joins with one request.
"""

import select
import socket
import time
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.load.client import decode, open_socket, read_frame, request_frame
from bench.load.closed_loop import STALLED_SECONDS, LoadError, undisturbed
from bench.load.requests import SESSION_TIMEOUT_MS, leave, leave_request, new_serial
from kohort.model.errors import ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey

JOIN: Final = (ApiKey.JOIN_GROUP, 3)
SYNC: Final = (ApiKey.SYNC_GROUP, 3)
HEARTBEAT: Final = (ApiKey.HEARTBEAT, 3)
LEAVE: Final = (ApiKey.LEAVE_GROUP, 3)
QUIET_SECONDS: Final = 0.3
ROUNDS_MAX: Final = 20
ASSIGNMENT: Final = bytes(32)


@dataclass(slots=True)
class _Member:
    """
    Attributes:
        generation: the generation of its latest JoinGroup response; -1 before.
        waits: a JoinGroup is outstanding.
    """

    connection: socket.socket
    group: "_Group"
    member_id: str = ""
    generation: int = -1
    waits: bool = False
    leads: bool = False

    def join(self) -> None:
        request = messages.JoinGroupRequest(
            group_id=self.group.group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[messages.JoinGroupRequestProtocol(name="range", metadata=b"bench")],
        )
        self.waits = True
        self.connection.sendall(request_frame(*JOIN, request))

    def joined(self, frame: bytes) -> None:
        """
        Raises:
            LoadError: the response has an error code.
        """
        answer = decode(*JOIN, frame)
        _expect(answer.error_code, 0, "JoinGroup")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id
        self.waits = False

    def sync(self) -> None:
        assigned = [it.member_id for it in self.group.members] if self.leads else []
        request = messages.SyncGroupRequest(
            group_id=self.group.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=[messages.SyncGroupRequestAssignment(member_id=it, assignment=ASSIGNMENT) for it in assigned],
        )
        self.connection.sendall(request_frame(*SYNC, request))


@dataclass(slots=True)
class _Group:
    group_id: str
    members: list[_Member] = field(default_factory=list)

    @property
    def is_together(self) -> bool:
        generations = {it.generation for it in self.members}
        return len(generations) == 1 and -1 not in generations and not any(it.waits for it in self.members)


@dataclass(frozen=True, slots=True)
class StormResult:
    """
    Attributes:
        rejoin_seconds: from the first LeaveGroup until the last JoinGroup is sent.
        stable_seconds: from there until the last member has its assignment.
    """

    rejoin_seconds: float
    stable_seconds: float


class ManyGroups:
    """Members of many groups. Connections are opened first, so that their memory can be told from that of members."""

    def __init__(self, port: int, groups: int, members: int, opened: ExitStack) -> None:
        serial = new_serial()
        self._groups = [_Group(f"bench-many-{serial}-{number}") for number in range(groups)]
        for group in self._groups:
            group.members = [_Member(opened.enter_context(open_socket(port)), group) for _ in range(members)]
        self._by_descriptor = {it.connection.fileno(): it for group in self._groups for it in group.members}
        self._epoll = opened.enter_context(select.epoll())
        for descriptor in self._by_descriptor:
            self._epoll.register(descriptor, select.EPOLLIN)
        opened.callback(self._leave)

    def gather(self) -> None:
        """
        Bring every group into one generation, and make it stable.

        Raises:
            LoadError: a group does not reach a common generation.
        """
        for _ in range(ROUNDS_MAX):
            apart = [group for group in self._groups if not group.is_together]
            if not apart:
                self._sync_all()
                return
            for member in (it for group in apart for it in group.members if not it.waits):
                member.join()
            for member, frame in self._answers(sum(len(group.members) for group in apart), QUIET_SECONDS):
                member.joined(frame)
        raise LoadError(f"groups have no common generation after {ROUNDS_MAX} rounds")

    def storm(self) -> StormResult:
        """
        Make one member of each group leave. The others notice it by their heartbeats, rejoin, and get their assignments.

        Raises:
            LoadError: an unexpected response.
        """
        with undisturbed():
            began = time.perf_counter()
            self._lose_one()
            self._beat()
            members = [it for group in self._groups for it in group.members]
            for member in members:
                member.join()
            rejoined = time.perf_counter()
            for member, frame in self._answers(2 * len(members)):
                if member.waits:
                    member.joined(frame)
                    member.sync()
                else:
                    _expect(decode(*SYNC, frame).error_code, 0, "SyncGroup")
            ended = time.perf_counter()
        return StormResult(rejoined - began, ended - rejoined)

    def _lose_one(self) -> None:
        """Make the member that joined last leave; never the leader."""
        leaving = [next(it for it in reversed(group.members) if not it.leads) for group in self._groups]
        for member in leaving:
            member.connection.sendall(request_frame(*LEAVE, leave_request(member.group.group_id, [member.member_id])))
        for member, frame in self._answers(len(leaving)):
            _expect(decode(*LEAVE, frame).error_code, 0, "LeaveGroup")
            member.group.members.remove(member)

    def _beat(self) -> None:
        members = [it for group in self._groups for it in group.members]
        for it in members:
            request = messages.HeartbeatRequest(
                group_id=it.group.group_id, generation_id=it.generation, member_id=it.member_id
            )
            it.connection.sendall(request_frame(*HEARTBEAT, request))
        for _, frame in self._answers(len(members)):
            _expect(decode(*HEARTBEAT, frame).error_code, ErrorCode.REBALANCE_IN_PROGRESS, "Heartbeat")

    def _sync_all(self) -> None:
        members = [it for group in self._groups for it in group.members]
        for member in members:
            member.sync()
        for _, frame in self._answers(len(members)):
            _expect(decode(*SYNC, frame).error_code, 0, "SyncGroup")

    def _leave(self) -> None:
        for group in self._groups:
            leave(
                [group.members[0].connection], [leave_request(group.group_id, [it.member_id for it in group.members])]
            )

    def _answers(self, count: int, quiet_seconds: float | None = None) -> Iterable[tuple[_Member, bytes]]:
        """
        Yield responses of any members, at most `count`; stop earlier after `quiet_seconds` without one.

        Raises:
            LoadError: no response in time, and `quiet_seconds` is None.
        """
        left = count
        while left:
            events = self._epoll.poll(STALLED_SECONDS if quiet_seconds is None else quiet_seconds)
            if not events and quiet_seconds is None:
                raise LoadError(f"no answer for {STALLED_SECONDS:g} seconds, {left} of {count} are outstanding")
            if not events:
                return
            for descriptor, _ in events:
                member = self._by_descriptor[descriptor]
                left -= 1
                yield member, read_frame(member.connection)


def _expect(code: int, due: int, what: str) -> None:
    if code != due:
        raise LoadError(f"{what} returned {ErrorCode(code).name}")
