"""
A kind of groups in forty lines, to show what a kind needs: groups that a member enters and leaves by one API.

It stands for streams groups in the table of transitions: an empty one becomes classic when a classic member joins.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from kohort.group.context import GroupContext
from kohort.group.front import GroupFront
from kohort.group.groups import STREAMS, BaseTimestamp
from kohort.group.kinds import GroupKind
from kohort.group.records import GroupRecordSerde
from kohort.machine.shard import Reply, Result
from kohort.machine.steps import Deadline, Wait
from kohort.model.context import RequestContext
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.image import ImageDelta
from kohort.wire.apis import ApiKey

KEY = b"\x7f\x00"


class TinyRecord(msgspec.Struct, frozen=True):
    """The members of a tiny group; None if it is deleted."""

    group_id: str
    members: tuple[str, ...] | None


class TinySerde(GroupRecordSerde):
    def encode(self, record: Any, /, version: int | None = None) -> tuple[bytes, bytes | None]:
        if not isinstance(record, TinyRecord):
            return super().encode(record, version)
        value = None if record.members is None else ",".join(record.members).encode()
        return KEY + record.group_id.encode(), value

    def decode(self, key: bytes, value: bytes | None, /) -> Any:
        if key[:2] != KEY:
            return super().decode(key, value)
        members = None if value is None else tuple(filter(None, value.decode().split(",")))
        return TinyRecord(key[2:].decode(), members)


class TinyGroup:
    kind = STREAMS
    listed_protocol_type = "tiny"

    def __init__(self, group_id: str, members: tuple[str, ...]) -> None:
        self.group_id = group_id
        self.members = members

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def state_name_at(self, _committed_offset: int, /) -> str:
        return self.state_name

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_simple(self) -> bool:
        return False

    @property
    def member_count(self) -> int:
        return len(self.members)

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic == "orders"

    def validate_offset_commit(
        self,
        member_id: str,
        _group_instance_id: str | None,
        epoch: int,
        _api_version: int,
        /,
        *,
        is_transactional: bool,
    ) -> None:
        assert not is_transactional
        if epoch >= 0 and member_id not in self.members:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch > 7:
            raise CoordinatorError(ErrorCode.STALE_MEMBER_EPOCH)

    def validate_offset_fetch(self, member_id: str | None, _epoch: int, _at: int | None, /) -> None:
        if member_id is not None and member_id not in self.members:
            raise CoordinatorError(ErrorCode.UNKNOWN_MEMBER_ID)

    def validate_offset_delete(self) -> None:
        pass

    def validate_delete(self) -> None:
        if self.members:
            raise CoordinatorError(ErrorCode.NON_EMPTY_GROUP)

    def offset_expiration_base(self) -> BaseTimestamp | None:
        return lambda offset: offset.commit_timestamp_ms

    def tombstones(self) -> list[Any]:
        return [TinyRecord(self.group_id, None)]


class TinyManager:
    classic_members = None

    def __init__(self, context: GroupContext) -> None:
        self.context = context
        self.loaded: list[str] = []
        self.committed: list[str] = []

    @property
    def replayers(self) -> Mapping[type, Callable[[Any], None]]:
        return {TinyRecord: self._replay}

    def _replay(self, record: TinyRecord) -> None:
        if record.members is None:
            self.context.groups.remove(record.group_id)
        else:
            self.context.groups.put(record.group_id, TinyGroup(record.group_id, record.members))

    def on_loaded(self, group: TinyGroup, _now_ms: int, /) -> Result[Any, None]:
        self.loaded.append(group.group_id)
        return Result()

    def on_image(self, _delta: ImageDelta, /) -> Sequence[Deadline]:
        return ()

    def on_offset_commit(self, _group: TinyGroup, member_id: str, /) -> None:
        self.committed.append(member_id)


class TinyApis:
    def __init__(self, front: GroupFront) -> None:
        self._front = front

    def handlers(self) -> Mapping[ApiKey, Callable[..., Any]]:
        return {ApiKey.STREAMS_GROUP_HEARTBEAT: self.heartbeat}

    def heartbeat(self, request: TinyRecord, _context: RequestContext, reply: Reply[str]) -> str | None:
        """Set the members of a group; "wait" lets the request wait."""

        def operation(_shard: Any, _now_ms: int) -> Result[Any, str]:
            if request.members == ("wait",):
                return Result((), Wait(("streams", request.group_id), None, None, None))
            return Result([request], "ok")

        return self._front.runner.write(self._front.partition_for(request.group_id), operation, reply, str)


TINY = GroupKind(
    name=STREAMS, states=("Empty", "Stable"), key_types=(17,), make_manager=TinyManager, make_apis=TinyApis
)
