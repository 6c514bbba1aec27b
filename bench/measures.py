"""What is measured: heartbeats of stable members, commits of simple consumers, the start, the memory."""

import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from bench import server
from bench.client import RefusedError, ask, ask_until_ready, decode, open_socket, request_frame
from bench.load import Lane, Round, Summary, lane, run
from bench.server import Server
from kohort.model.errors import ErrorCode
from kohort.wire import messages
from kohort.wire.apis import ApiKey

GROUPS: Final = 64
"""They land in some 36 of the 50 partitions of `__consumer_offsets`."""
TOPIC: Final = "bench"
SESSION_TIMEOUT_MS: Final = 45_000
SETTINGS: Final = ("group.initial.rebalance.delay.ms=0",)
HEARTBEAT: Final = (ApiKey.HEARTBEAT, 4)
JOIN_GROUP: Final = (ApiKey.JOIN_GROUP, 9)
OFFSET_COMMIT: Final = (ApiKey.OFFSET_COMMIT, 9)


@dataclass(frozen=True, slots=True)
class Measure:
    """
    One line of the table.

    Attributes:
        goal: requests per second aimed at on the developers' machine (2 cores, shared with the load).
    """

    name: str
    flush: str
    connections: int
    goal: int

    def title(self) -> str:
        return f"{self.name}, {self.connections} connection{'s' if self.connections > 1 else ''}"


# fmt: off
MEASURES: Final = (
    Measure("heartbeat", "os", 64, 90_000),
    Measure("commit", "os", 1, 10_000),
    Measure("commit", "os", 8, 60_000),
    Measure("commit", "os", 64, 65_000),
    Measure("heartbeat", "commit", 64, 90_000),
    Measure("commit", "commit", 1, 4_000),
    Measure("commit", "commit", 8, 14_000),
    Measure("commit", "commit", 64, 40_000),
)
# fmt: on
START_GOAL_MS: Final = 200
RESIDENT_GOAL_MB: Final = 60


@dataclass(frozen=True, slots=True)
class Plan:
    """How long each measure takes."""

    warm_up_seconds: float = 1.0
    round_seconds: float = 2.0
    rounds: int = 5
    starts: int = 10


@dataclass(frozen=True, slots=True)
class Result:
    """
    A measure that was taken.

    Attributes:
        server_cpu: processors the server kept busy; above 1 with threads that flush.
    """

    measure: Measure
    summary: Summary
    server_cpu: float

    @property
    def server_us(self) -> float:
        """Processor time of the server per request, in microseconds: what still means something on a busy machine."""
        return self.server_cpu / self.summary.per_second * 1e6


def measure_all(measures: Sequence[Measure], plan: Plan, on_result: Callable[[Result], None]) -> list[Result]:
    """Take the measures, with one server for all neighbours of one flush mode."""
    results: list[Result] = []
    for flush in dict.fromkeys(measure.flush for measure in measures):
        with server.kohort(flush, *SETTINGS) as running:
            prepare(running)
            for measure in measures:
                if measure.flush == flush:
                    results.append(take(measure, running, plan))
                    on_result(results[-1])
    return results


def take(measure: Measure, running: Server, plan: Plan) -> Result:
    """One measure: connections and requests, a warm-up, some rounds."""
    with ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(open_socket(running.port)) for _ in range(measure.connections)]
        lanes = LANES[measure.name](sockets)
        run(lanes, plan.warm_up_seconds)
        cpu_before, begun = running.cpu_seconds, time.perf_counter()
        rounds: list[Round] = [run(lanes, plan.round_seconds) for _ in range(plan.rounds)]
        server_cpu = (running.cpu_seconds - cpu_before) / (time.perf_counter() - begun)
    return Result(measure, Summary.of(rounds), server_cpu)


def ceiling(plan: Plan, connections: int = 64) -> Result:
    """The load against a server that does nothing: what it can measure at most."""
    request = request_frame(*HEARTBEAT, messages.HeartbeatRequest(group_id=group_of(0), member_id="-" * 40))
    # Flexible header without tags, no throttling, no error, no tags.
    with server.constant(bytes(1 + 4 + 2 + 1)) as running, ExitStack() as open_sockets:
        sockets = [open_sockets.enter_context(open_socket(running.port)) for _ in range(connections)]
        lanes = [lane(connection, [request], check_heartbeat) for connection in sockets]
        run(lanes, plan.warm_up_seconds)
        cpu_before, begun = running.cpu_seconds, time.perf_counter()
        rounds = [run(lanes, plan.round_seconds) for _ in range(plan.rounds)]
        server_cpu = (running.cpu_seconds - cpu_before) / (time.perf_counter() - begun)
    return Result(Measure("constant answer", "-", connections, 0), Summary.of(rounds), server_cpu)


def first_answers_ms(starts: int) -> list[float]:
    """Milliseconds from exec to the answer to ApiVersions, for each of several starts on an empty directory."""
    request = messages.ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    taken_ms: list[float] = []
    for _ in range(starts):
        with server.kohort("commit") as running, open_socket(running.port) as connection:
            response = ask(connection, ApiKey.API_VERSIONS, 3, request)
            taken_ms.append((time.perf_counter() - running.started_at) * 1000)
            _refuse_unless_none(response.error_code, "ApiVersions")
    return taken_ms


def first_answer_ms(starts: int) -> float:
    """Median of `first_answers_ms`."""
    return median(first_answers_ms(starts))


def idle_resident_mb() -> tuple[float, float]:
    """Resident memory (10^6 bytes) of a server that nobody has spoken to, and with 64 connections that have said hello."""
    request = messages.ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    with server.kohort("commit") as running, ExitStack() as open_sockets:
        alone = running.resident_mb
        for _ in range(64):
            ask(open_sockets.enter_context(open_socket(running.port)), ApiKey.API_VERSIONS, 3, request)
        return alone, running.resident_mb


# -- what is sent -------------------------------------------------------------------------------------------------------


def group_of(number: int) -> str:
    return f"bench-{number:02}"


def prepare(running: Server) -> None:
    """The topic, and every coordinator that the groups need, loaded."""
    topic = messages.CreateTopicsRequestCreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    create = messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    find = messages.FindCoordinatorRequest(coordinator_keys=[group_of(number) for number in range(GROUPS)])
    with open_socket(running.port) as connection:
        created = ask(connection, ApiKey.CREATE_TOPICS, 7, create)
        _refuse_unless_none(created.topics[0].error_code, "CreateTopics")
        ask_until_ready(
            connection, ApiKey.FIND_COORDINATOR, 4, find, lambda found: max(it.error_code for it in found.coordinators)
        )
        for number in range(GROUPS):
            ask_until_ready(connection, *OFFSET_COMMIT, commit_request(number), _commit_code)


def commit_request(number: int) -> Any:
    """A commit of a consumer that is no member: generation -1, one partition."""
    partition = messages.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1_000_000 + number, committed_leader_epoch=-1, committed_metadata=""
    )
    return messages.OffsetCommitRequest(
        group_id=group_of(number),
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[messages.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def commit_lanes(sockets: Sequence[socket.socket]) -> list[Lane]:
    """All groups, dealt out to the connections."""
    requests = [request_frame(*OFFSET_COMMIT, commit_request(number)) for number in range(GROUPS)]
    count = len(sockets)
    return [lane(connection, requests[index::count], check_commit) for index, connection in enumerate(sockets)]


def heartbeat_lanes(sockets: Sequence[socket.socket]) -> list[Lane]:
    """One stable member a group, dealt out to the connections."""
    lanes: list[Lane] = []
    count = len(sockets)
    for index, connection in enumerate(sockets):
        requests = [request_frame(*HEARTBEAT, join(connection, number)) for number in range(index, GROUPS, count)]
        lanes.append(lane(connection, requests, check_heartbeat))
    return lanes


def join(connection: socket.socket, number: int) -> Any:
    """
    Join a group of its own kind, as its only member, and stay.

    Returns:
        The heartbeat that the member sends from now on.
    """
    group_id = f"{group_of(number)}-members"
    # The first answer is MEMBER_ID_REQUIRED, with the id to come back with (KIP-394).
    invited = ask_until_ready(connection, *JOIN_GROUP, _join_request(group_id, ""), _join_code)
    joined = ask_until_ready(connection, *JOIN_GROUP, _join_request(group_id, invited.member_id), _join_code)
    member_id = joined.member_id
    assignment = messages.SyncGroupRequestAssignment(member_id=member_id, assignment=b"")
    sync = messages.SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    ask_until_ready(connection, ApiKey.SYNC_GROUP, 5, sync, lambda synced: int(synced.error_code))
    return messages.HeartbeatRequest(group_id=group_id, generation_id=joined.generation_id, member_id=member_id)


def _join_request(group_id: str, member_id: str) -> Any:
    return messages.JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[messages.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def _join_code(joined: Any) -> int:
    return 0 if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED else int(joined.error_code)


def _commit_code(committed: Any) -> int:
    return max(int(partition.error_code) for topic in committed.topics for partition in topic.partitions)


def check_heartbeat(answer: bytes) -> None:
    _refuse_unless_none(decode(*HEARTBEAT, answer).error_code, "Heartbeat")


def check_commit(answer: bytes) -> None:
    _refuse_unless_none(_commit_code(decode(*OFFSET_COMMIT, answer)), "OffsetCommit")


def _refuse_unless_none(code: int, what: str) -> None:
    if code:
        raise RefusedError(f"{what} was answered with {ErrorCode(code).name}")


LANES: Final[dict[str, Callable[[Sequence[socket.socket]], list[Lane]]]] = {
    "heartbeat": heartbeat_lanes,
    "commit": commit_lanes,
}
