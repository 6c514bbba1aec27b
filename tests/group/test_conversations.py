"""
Conversations of real clients with Apache Kafka 4.2.1, and of raw frames with 4.4.0 (`commit_topic_ids`), held again with this
coordinator: the same requests at the same times get the same answers.

The frames pass through the codec both ways. Random member ids are those that the broker drew.
"""

import gzip
from functools import cache
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec
import pytest

from kohort.group.configs import GroupConfig
from kohort.testing import FixedContext
from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import response_encoder
from kohort.wire.headers import read_request_header, read_response_header
from kohort.wire.readers import Decoded, request_reader, response_reader
from tests.group.golden import DATA
from tests.group.harness import Answer, Coordinator, Image, Topic

APIS = {
    8: "offset_commit",
    9: "offset_fetch",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    42: "delete_groups",
    47: "offset_delete",
}


ORDERS_ID = UUID("0c10dae0-963c-44a4-b2f3-f54e8b3b0b42")
"""The id of `orders` in the conversations that name it by its id."""
TOPIC_DELETED_BEFORE_FETCH_OF = "loses-topic"
"""In admin_offsets a topic is deleted, by a request that is none of the group coordinator's; then this group is asked about."""


class Frame(msgspec.Struct, frozen=True):
    """`t` is in seconds since the conversation began; `hex` is the frame after its length."""

    scenario: str
    t: float
    conn: int
    dir: str
    key: int
    version: int
    correlation_id: int
    client_id: str
    hex: str


@cache
def conversations() -> dict[str, list[Frame]]:
    with gzip.open(DATA / "conversations.jsonl.gz", "rb") as lines:
        frames = [msgspec.json.decode(line, type=Frame) for line in lines]
    return {name: list(found) for name, found in groupby(frames, key=lambda frame: frame.scenario)}


def plain(value: Any) -> Any:
    """A message as values alone; lists of structs sorted, for Kafka keeps no order in them."""
    if isinstance(value, Decoded):
        return {name: plain(getattr(value, name)) for name in value.field_names}
    if isinstance(value, tuple):
        items = [plain(item) for item in value]
        return sorted(items, key=str) if items and isinstance(items[0], dict) else items
    return value


class Conversation:
    """Holds one again, request by request."""

    def __init__(self, frames: list[Frame]) -> None:
        self.frames = frames
        self.coordinator = Coordinator(GroupConfig(group_initial_rebalance_delay_ms=0))
        self.coordinator.image = image = Image(("orders", "payments", "short-lived", "clicks.eu", "clicks.us"))
        self.coordinator.service.image = image
        image.by_name["orders"] = Topic("orders", ORDERS_ID, 4)
        self.next_uuid = ""
        self.coordinator.shard.context.new_uuid = lambda: self.next_uuid
        self.started_ms = self.coordinator.now_ms
        self.answers: dict[tuple[int, int], Answer] = {}
        self.replies = {(frame.conn, frame.correlation_id): frame for frame in frames if frame.dir == "response"}

    def hold(self) -> list[tuple[str, Any, Any]]:
        """API, our answer and Kafka's, for each answer that Kafka gave."""
        compared = []
        for frame in self.frames:
            elapsed_ms = int(frame.t * 1_000) - (self.coordinator.now_ms - self.started_ms)
            self.coordinator.advance(max(elapsed_ms, 0))
            if frame.dir == "request":
                self._ask(frame)
            else:
                ours = self.answers[frame.conn, frame.correlation_id]
                body = None if ours.is_parked else _through_the_wire(frame, ours.response)
                compared.append((APIS[frame.key], body, _read_response(frame, bytes.fromhex(frame.hex))))
        return compared

    def _ask(self, frame: Frame) -> None:
        data = bytes.fromhex(frame.hex)
        key, version, correlation_id, client_id, offset = read_request_header(data)
        request: Any = request_reader(key, version)(data, offset)
        reply = self.replies.get((frame.conn, correlation_id))
        if APIS[key] == "join_group" and not request.member_id and reply is not None:
            prefix = client_id if request.group_instance_id is None else request.group_instance_id
            drawn = response_reader(key, version)(*_body(reply, bytes.fromhex(reply.hex))).member_id
            self.next_uuid = drawn.removeprefix(f"{prefix}-")
        if APIS[key] == "offset_fetch" and any(g.group_id == TOPIC_DELETED_BEFORE_FETCH_OF for g in request.groups):
            self.coordinator.delete_topics("short-lived")
            self.coordinator.advance(0)
        answer = self.answers[frame.conn, correlation_id] = Answer()
        context = FixedContext(version, client_id, "/127.0.0.1")
        response = self.coordinator.service.handlers()[API_KEYS[key]](request, context, answer.responses.append)
        if response is not None:
            answer.responses.append(response)
        self.coordinator.advance(0)


def _body(frame: Frame, data: bytes) -> tuple[bytes, int]:
    return data, read_response_header(data, frame.key, frame.version)[1]


def _read_response(frame: Frame, data: bytes) -> Any:
    return plain(response_reader(frame.key, frame.version)(*_body(frame, data)))


def _through_the_wire(frame: Frame, response: Any) -> Any:
    written = bytes(response_encoder(frame.key, frame.version)(frame.correlation_id, response))
    assert int.from_bytes(written[:4], "big") == len(written) - 4
    return _read_response(frame, written[4:])


@pytest.mark.parametrize("scenario", sorted(conversations()))
def test_a_conversation_goes_as_with_kafka(scenario: str) -> None:
    compared = Conversation(conversations()[scenario]).hold()
    for index, (api, ours, theirs) in enumerate(compared):
        assert ours == theirs, f"answer {index}, {api}"
    assert compared
