"""A Heartbeat that a connection repeats is answered as the plain one would be."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.testing import FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.readers import response_reader
from kohort.wire.templates import Memory, PreparedResponse, TemplateCache, TemplateMatch, route_repeats
from tests.group.harness import Coordinator

HEARTBEAT = ApiKey.HEARTBEAT


class Connection:
    """A connection that reads requests as the server does; `prepared` counts the answers that were encoded before."""

    def __init__(self, coordinator: Coordinator, version: int = 4, cache: TemplateCache | None = None) -> None:
        self.coordinator = coordinator
        self.version = version
        self.handler = coordinator.service.handlers()[HEARTBEAT]
        self.cache = cache or TemplateCache(Memory())
        self.read, self.encode = route_repeats(HEARTBEAT, version, self.handler, response_encoder(HEARTBEAT, version))
        self.repeats = 0
        self.prepared = 0

    def send(self, request: m.HeartbeatRequest) -> ErrorCode:
        frame = request_encoder(HEARTBEAT, self.version)(7, "client", request)
        assert self.read is not None
        read = self.read(frame, 4 + 8 + 2 + len("client") + (self.version >= 4), self.cache)
        self.repeats += isinstance(read, TemplateMatch)
        answers: list[Any] = []
        response = self.handler(read, FixedContext(self.version, "client", "/127.0.0.1"), answers.append)
        self.coordinator.node.settle()
        if response is None:
            (response,) = answers
        self.prepared += isinstance(response, PreparedResponse)
        decoded = response_reader(HEARTBEAT, self.version)(self.encode(9, response), 8 + (self.version >= 4))
        return ErrorCode(decoded.error_code)


def stable(coordinator: Coordinator, instance: str | None = None) -> m.HeartbeatRequest:
    """The heartbeat of the only member of a stable group."""
    member_id = "" if instance else coordinator.new_member_id()
    joined = coordinator.join(member_id, instance=instance)
    coordinator.advance(3_000)
    coordinator.sync(joined.member_id, joined.generation_id, {joined.member_id: b"all"}, instance=instance)
    return m.HeartbeatRequest(
        group_id="group",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        group_instance_id=instance,
    )


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("instance", [None, "i"])
def test_the_third_equal_heartbeat_is_recognised_and_answered_as_the_first(
    coordinator: Coordinator, version: int, instance: str | None
) -> None:
    beat = stable(coordinator, instance if version >= 3 else None)
    connection = Connection(coordinator, version)
    assert [connection.send(beat) for _ in range(5)] == [ErrorCode.NONE] * 5
    assert (connection.repeats, connection.prepared) == (3, 3)


def test_a_repeated_heartbeat_keeps_the_session(coordinator: Coordinator) -> None:
    beat = stable(coordinator)
    connection = Connection(coordinator)
    for _ in range(6):
        assert connection.send(beat) is ErrorCode.NONE
        coordinator.advance(9_900)
    coordinator.advance(200)
    assert connection.send(beat) is ErrorCode.UNKNOWN_MEMBER_ID


def join_as_consumer(coordinator: Coordinator) -> None:
    request = m.ConsumerGroupHeartbeatRequest(
        group_id="group",
        member_id="modern",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )
    coordinator.ask("consumer_group_heartbeat", request)


def leave(coordinator: Coordinator) -> None:
    (member_id,) = coordinator.groups["group"].members
    coordinator.leave((member_id, None))


CHANGES: dict[str, Callable[[Coordinator], Any]] = {
    "another member joins": lambda coordinator: coordinator.join(coordinator.new_member_id()),
    "the member leaves": leave,
    "the member joins again": lambda coordinator: coordinator.join(
        next(iter(coordinator.groups["group"].members)), protocols=[("range", b"other")]
    ),
    "a consumer joins": join_as_consumer,
    "a restart": lambda coordinator: coordinator.restart(),
    "the partition has no leader": lambda coordinator: coordinator.runtime.unload(0, None),
    "the service stops": lambda coordinator: setattr(coordinator.service, "is_active", False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_it_is_answered_as_a_heartbeat_that_was_never_repeated(change: str) -> None:
    answers: dict[bool, list[ErrorCode]] = {False: [], True: []}
    for is_repeated, found in answers.items():
        coordinator = Coordinator()
        beat = stable(coordinator)
        connection = Connection(coordinator)
        for _ in range(4):
            connection.send(beat)
        CHANGES[change](coordinator)
        for _ in range(4):
            connection = Connection(coordinator, cache=connection.cache if is_repeated else None)
            found.append(connection.send(beat))
    assert answers[True] == answers[False]


@pytest.mark.parametrize(
    "fields",
    [
        {"group_id": ""},
        {"group_id": "missing"},
        {"generation_id": 7},
        {"member_id": "nobody"},
        {"group_instance_id": "i"},
    ],
)
def test_a_heartbeat_that_is_refused_is_refused_each_time(coordinator: Coordinator, fields: dict[str, Any]) -> None:
    beat = stable(coordinator)
    wrong = m.HeartbeatRequest(
        **{
            "group_id": beat.group_id,
            "generation_id": beat.generation_id,
            "member_id": beat.member_id,
            **fields,
        }
    )
    connection = Connection(coordinator)
    codes = {connection.send(wrong) for _ in range(5)}
    assert len(codes) == 1
    assert codes != {ErrorCode.NONE}
    assert (connection.repeats, connection.prepared) == (3, 0)
