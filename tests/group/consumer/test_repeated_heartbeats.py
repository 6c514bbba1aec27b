"""A heartbeat that a connection repeats is answered as the plain one would be."""

from collections.abc import Callable
from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.model.image import ImageDelta
from kohort.testing import FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder, response_encoder
from kohort.wire.readers import response_reader
from kohort.wire.templates import Memory, PreparedResponse, TemplateCache, TemplateMatch, route_repeats
from tests.group.consumer.members import Member
from tests.group.harness import Coordinator, Topic

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT


class Connection:
    """A connection that reads requests as the server does; `repeats` counts those that it recognised."""

    def __init__(self, coordinator: Coordinator, version: int = 1) -> None:
        self.coordinator = coordinator
        self.version = version
        self.handler = coordinator.service.handlers()[HEARTBEAT]
        self.cache = TemplateCache(Memory())
        self.read, self.encode = route_repeats(HEARTBEAT, version, self.handler, response_encoder(HEARTBEAT, version))
        self.repeats = 0
        self.prepared = 0

    def send(self, **fields: Any) -> Any:
        """The response to a heartbeat, decoded from its frame."""
        frame = request_encoder(HEARTBEAT, self.version)(7, "client", m.ConsumerGroupHeartbeatRequest(**fields))
        start = 4 + 8 + 2 + len("client") + 1
        assert self.read is not None
        request = self.read(frame, start, self.cache)
        self.repeats += isinstance(request, TemplateMatch)
        answers: list[Any] = []
        response = self.handler(request, FixedContext(self.version, "client", "/127.0.0.1"), answers.append)
        self.coordinator.node.settle()
        if response is None:
            (response,) = answers
        self.prepared += isinstance(response, PreparedResponse)
        return response_reader(HEARTBEAT, self.version)(self.encode(9, response), 9)

    def again(self) -> "Connection":
        """A new connection with the templates of this one, to the present service."""
        connection = Connection(self.coordinator, self.version)
        connection.cache = self.cache
        return connection


@pytest.mark.parametrize("version", [0, 1])
def test_the_third_equal_heartbeat_is_recognised_and_answered_as_the_first(version: int) -> None:
    coordinator = Coordinator()
    member = Member(coordinator, "a")
    member.join()
    connection = Connection(coordinator, version)
    beat = {"group_id": "group", "member_id": "a", "member_epoch": 2}
    answers = [connection.send(**beat) for _ in range(5)]
    assert answers == [answers[0]] * 5
    assert (answers[0].error_code, answers[0].member_epoch, answers[0].heartbeat_interval_ms) == (0, 2, 5_000)
    assert (connection.repeats, connection.prepared) == (3, 3)


def test_a_repeated_heartbeat_keeps_the_session() -> None:
    coordinator = Coordinator()
    Member(coordinator, "a").join()
    connection = Connection(coordinator)
    for _ in range(6):
        assert connection.send(group_id="group", member_id="a", member_epoch=2).error_code == 0
        coordinator.advance(44_000)
    coordinator.advance(1_000)
    refused = connection.send(group_id="group", member_id="a", member_epoch=2)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def grow(coordinator: Coordinator) -> None:
    topic = coordinator.image.by_name["orders"]
    grown = coordinator.image.by_name["orders"] = Topic("orders", topic.topic_id, 6)
    coordinator.on_image(ImageDelta(changed=(grown,)))


CHANGES: dict[str, Callable[[Coordinator], Any]] = {
    "another member joins": lambda coordinator: Member(coordinator, "b").join(),
    "the topic grows": grow,
    "the member leaves": lambda coordinator: Member(coordinator, "a").leave(),
    "the member joins again": lambda coordinator: Member(coordinator, "a").join(),
    "the member changes its topics": lambda coordinator: Member(coordinator, "a").beat(
        member_epoch=2, subscribed_topic_names=["payments"]
    ),
    "a restart": lambda coordinator: coordinator.restart(),
    "another host": lambda coordinator: Member(coordinator, "a").beat(member_epoch=2, client_id="other"),
    "the service stops": lambda coordinator: setattr(coordinator.service, "is_active", False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_change_it_is_answered_as_a_heartbeat_that_was_never_repeated(change: str) -> None:
    answers: dict[bool, list[Any]] = {False: [], True: []}
    for is_repeated, found in answers.items():
        coordinator = Coordinator()
        Member(coordinator, "a").join()
        connection = Connection(coordinator)
        for _ in range(4):
            connection.send(group_id="group", member_id="a", member_epoch=2)
        CHANGES[change](coordinator)
        for _ in range(4):
            connection = connection.again() if is_repeated else Connection(coordinator)
            found.append(connection.send(group_id="group", member_id="a", member_epoch=2))
    assert answers[True] == answers[False]


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "i"},
        {"subscribed_topic_names": ["orders"]},
        {"rebalance_timeout_ms": 60_000},
        {"server_assignor": "range"},
        {"rack_id": "r"},
        {"member_id": " "},
        {"member_epoch": -1},
        {"member_epoch": 3},
    ],
)
def test_a_heartbeat_that_tells_something_is_never_prepared(fields: dict[str, Any]) -> None:
    coordinator = Coordinator()
    Member(coordinator, "a").join()
    connection = Connection(coordinator)
    for _ in range(4):
        connection.send(**{"group_id": "group", "member_id": "a", "member_epoch": 2, **fields})
    assert (connection.repeats, connection.prepared) == (2, 0)
