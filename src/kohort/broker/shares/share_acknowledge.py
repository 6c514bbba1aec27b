"""
ShareAcknowledge (79), versions 1 and 2, and the acknowledgements that ShareFetch brings with it.

Source: KIP-932, KIP-1222; Kafka KafkaApis.handleShareAcknowledgeRequest, validateAcknowledgementBatches,
SharePartitionManager.acknowledge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from kohort.broker.ports import Context
from kohort.broker.shares.acknowledgement import AcknowledgementBatch
from kohort.broker.shares.led_share_partition import NOT_HOSTED
from kohort.broker.shares.record_states import RENEW
from kohort.broker.shares.share_broker import ShareBroker
from kohort.broker.shares.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, TopicIdPartition
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

Asked: TypeAlias = dict[TopicIdPartition, Sequence[AcknowledgementBatch]]
Results: TypeAlias = dict[TopicIdPartition, tuple[ErrorCode, str | None]]

MEMBER_ID_LENGTH_MAX: Final = 36
_LEADER_ERRORS: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def check_names(group_id: str | None, member_id: str | None) -> ErrorCode:
    """Check the names of group and member of a request."""
    if group_id is None or not member_id or len(member_id) > MEMBER_ID_LENGTH_MAX:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def acknowledgements(topics: Sequence[Any]) -> Asked:
    """The acknowledgements of a request by partition. The last entry of a partition counts."""
    asked: Asked = {}
    for topic in topics:
        for each in topic.partitions:
            asked[TopicIdPartition(topic.topic_id, each.partition_index)] = [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in each.acknowledgement_batches
            ]
    return asked


def is_valid(batches: Sequence[AcknowledgementBatch], types_max: int, *, is_renewal: bool) -> bool:
    """Whether batches of acknowledgements are in order, and have known types."""
    before = -1
    for first, last, types in batches:
        if first > last or first < before or not types:
            return False
        if len(types) > 1 and len(types) != last - first + 1:
            return False
        if min(types) < 0 or max(types) > types_max or (RENEW in types and not is_renewal):
            return False
        before = last
    return True


class Acknowledging:
    """
    The acknowledgements of one request.

    Args:
        done: called once with the results, when all are written.
    """

    __slots__ = ("_broker", "_done", "_left", "results")

    def __init__(self, broker: ShareBroker, done: Callable[[], None]) -> None:
        self._broker = broker
        self._done = done
        self._left = 1
        self.results: Results = {}

    def begin(
        self,
        group_id: str,
        member_id: str,
        asked: Mapping[TopicIdPartition, Sequence[AcknowledgementBatch]],
        context: Context,
        *,
        is_renewal: bool,
    ) -> None:
        """Acknowledge; `done` may be called within this call."""
        types_max = RENEW if context.api_version > 1 else RENEW - 1
        find = self._broker.finder(context, asked)
        empty = []
        has_valid = False
        for where, batches in asked.items():
            found = find(where)
            if found is ErrorCode.UNKNOWN_TOPIC_ID:
                self.results[where] = found, None
            elif not is_valid(batches, types_max, is_renewal=is_renewal):
                self.results[where] = ErrorCode.INVALID_REQUEST, None
            elif isinstance(found, ErrorCode):
                self.results[where] = found, None
            elif not batches:
                empty.append(where)
            else:
                has_valid = True
                self._acknowledge(group_id, member_id, where, batches)
        if has_valid:
            self.results.update(dict.fromkeys(empty, (ErrorCode.NONE, None)))
        self._end_one()

    def _acknowledge(
        self, group_id: str, member_id: str, where: TopicIdPartition, batches: Sequence[AcknowledgementBatch]
    ) -> None:
        led = self._broker.leader.find(group_id, where.topic_id, where.partition)
        if led is not None:
            self._broker.leader.check(led)
        if led is None or led.error:
            self.results[where] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED
            return
        self._left += 1
        self._broker.count(batches)
        led.acknowledge(member_id, batches, partial(self._on_done, where))

    def _on_done(self, where: TopicIdPartition, code: ErrorCode, message: str | None) -> None:
        self.results[where] = code, message
        self._end_one()

    def _end_one(self) -> None:
        self._left -= 1
        if not self._left:
            self._done()


class ShareAcknowledge:
    """Handler of ShareAcknowledge."""

    def __init__(self, broker: ShareBroker) -> None:
        self._broker = broker

    def share_acknowledge(
        self, request: m.ShareAcknowledgeRequest, context: Context, reply: Reply[m.ShareAcknowledgeResponse]
    ) -> m.ShareAcknowledgeResponse | None:
        group_id, member_id = request.group_id, request.member_id
        if code := check_names(group_id, member_id):
            return m.ShareAcknowledgeResponse(error_code=code)
        assert group_id is not None, "the names are checked"
        assert member_id is not None, "the names are checked"
        epoch = request.share_session_epoch
        try:
            if epoch == INITIAL_EPOCH:
                raise CoordinatorError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session = self._broker.sessions.find(group_id, member_id, epoch)
        except CoordinatorError as error:
            return m.ShareAcknowledgeResponse(error_code=error.code)

        def done() -> None:
            response = self._response(acknowledging.results, group_id, context)
            if epoch == FINAL_EPOCH:
                self._broker.sessions.close(session)
            reply(response)

        acknowledging = Acknowledging(self._broker, done)
        asked = acknowledgements(request.topics)
        acknowledging.begin(group_id, member_id, asked, context, is_renewal=request.is_renew_ack)
        return None

    def _response(self, results: Results, group_id: str, context: Context) -> m.ShareAcknowledgeResponse:
        topics: dict[Any, list[m.ShareAcknowledgeResponsePartitionData]] = {}
        leaders = set()
        for where, (code, message) in results.items():
            leader = m.ShareAcknowledgeResponseLeaderIdAndEpoch()
            if code in _LEADER_ERRORS:
                leader_id, leader_epoch = self._broker.current_leader(where)
                leaders.add(leader_id)
                leader = m.ShareAcknowledgeResponseLeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
            topics.setdefault(where.topic_id, []).append(
                m.ShareAcknowledgeResponsePartitionData(
                    partition_index=where.partition, error_code=code, error_message=message, current_leader=leader
                )
            )
        return m.ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=self._broker.settings.of(group_id).of_records.lock_ms,
            responses=[
                m.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
            node_endpoints=[
                m.ShareAcknowledgeResponseNodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in self._broker.endpoints(leaders, context.listener)
            ],
        )
