"""
ShareFetch (78), versions 1 and 2: sessions, acknowledgements that come along, and records.

Source: KIP-932, KIP-1206, KIP-1222; Kafka KafkaApis.handleShareFetchRequest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from kohort.broker.ports import Context
from kohort.broker.shares.acquisition import BATCH_OPTIMIZED, RECORD_LIMIT
from kohort.broker.shares.delayed_share_fetch import DelayedShareFetch
from kohort.broker.shares.share_acknowledge import acknowledgements, check_names
from kohort.broker.shares.share_broker import ShareBroker
from kohort.broker.shares.share_sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, TopicIdPartition
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

_RENEWAL_LIMITS: Final = ("max_bytes", "min_bytes", "max_records", "max_wait_ms")
_MODES: Final = (BATCH_OPTIMIZED, RECORD_LIMIT)


class ShareFetch:
    """Handler of ShareFetch."""

    def __init__(self, broker: ShareBroker) -> None:
        self._broker = broker

    def share_fetch(
        self, request: m.ShareFetchRequest, context: Context, reply: Reply[m.ShareFetchResponse]
    ) -> m.ShareFetchResponse | None:
        group_id, member_id, epoch = request.group_id, request.member_id, request.share_session_epoch
        if code := check_names(group_id, member_id):
            return m.ShareFetchResponse(error_code=code)
        assert group_id is not None, "the names are checked"
        assert member_id is not None, "the names are checked"
        if request.is_renew_ack and any(getattr(request, limit) for limit in _RENEWAL_LIMITS):
            return m.ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST)
        named = [
            TopicIdPartition(topic.topic_id, each.partition_index)
            for topic in request.topics
            if topic.topic_id is not None
            for each in topic.partitions
        ]
        has_acknowledgements = any(
            each.acknowledgement_batches for topic in request.topics for each in topic.partitions
        )
        try:
            if epoch == INITIAL_EPOCH:
                session = self._open(group_id, member_id, named, context, has_acknowledgements=has_acknowledgements)
            else:
                session = self._broker.sessions.find(group_id, member_id, epoch)
                if epoch != FINAL_EPOCH:
                    self._broker.sessions.add(session, named)
                    self._broker.sessions.remove(session, _forgotten(request))
        except CoordinatorError as error:
            return self._refuse(error.code, request, reply)
        if request.share_acquire_mode not in _MODES:
            return m.ShareFetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        asked = acknowledgements(request.topics) if has_acknowledgements else {}
        fetch = DelayedShareFetch(self._broker, session, request, context, reply)
        fetch.begin(asked)
        return None

    def _open(
        self,
        group_id: str,
        member_id: str,
        named: Sequence[TopicIdPartition],
        context: Context,
        *,
        has_acknowledgements: bool,
    ) -> ShareSession:
        """
        Open a session, which ends with the connection.

        Raises:
            CoordinatorError: INVALID_REQUEST or SHARE_SESSION_LIMIT_REACHED.
        """
        if has_acknowledgements:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST)
        sessions = self._broker.sessions
        session = sessions.open(group_id, member_id, named)
        session.forget = context.when_disconnected(session, partial(sessions.close, session, is_lost=True))
        return session

    def _refuse(
        self, code: ErrorCode, request: m.ShareFetchRequest, reply: Reply[m.ShareFetchResponse]
    ) -> m.ShareFetchResponse | None:
        """Answer an error of the session. A client that finds no room for its session is not to ask again at once."""
        response = m.ShareFetchResponse(error_code=code)
        if code is ErrorCode.SHARE_SESSION_LIMIT_REACHED and request.max_wait_ms > 0:
            self._broker.call_later(request.max_wait_ms, partial(reply, response))
            return None
        return response


def _forgotten(request: m.ShareFetchRequest) -> Iterator[TopicIdPartition]:
    for topic in request.forgotten_topics_data:
        if topic.topic_id is not None:
            for index in topic.partitions:
                yield TopicIdPartition(topic.topic_id, index)
