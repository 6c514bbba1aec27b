"""
Share sessions: which partitions a member reads from this broker.

A session ends when its client closes it, or with the connection on which it was opened. There is no idle timeout.

Source: KIP-932; Kafka ShareSession, ShareSessionCache, SharePartitionManager.newContext.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from kohort.model.errors import CoordinatorError, ErrorCode

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic, as clients of share groups name it."""

    topic_id: UUID
    partition: int


def _nothing() -> None:
    """Nobody has to be told that a session ends."""


class ShareSession:
    """
    A session.

    Attributes:
        epoch: the one that the next request has to have.
        partitions: in the order in which they are read; whether the next answer names them in any case.
        known: topics that existed at some time; a deleted one is answered in another way than one that never was.
        forget: to be called when the session ends before its connection.
    """

    __slots__ = ("epoch", "forget", "group_id", "is_closed", "known", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, bool] = {}
        self.forget: Callable[[], None] = _nothing
        self.is_closed = False
        self.known: set[UUID] = set()

    def raise_epoch(self) -> None:
        self.epoch = 1 if self.epoch == _EPOCH_MAX else self.epoch + 1

    def rotated(self, epoch: int) -> list[TopicIdPartition]:
        """The partitions from another one on with each request. Source: PartitionRotateStrategy."""
        partitions = list(self.partitions)
        if epoch < 1 or not partitions:
            return partitions
        at = epoch % len(partitions)
        return partitions[at:] + partitions[:at]

    def is_named(self, where: TopicIdPartition, *, has_records: bool, has_error: bool, is_first: bool) -> bool:
        """
        Whether an answer names a partition that was read; notes that it does.

        Source: CachedSharePartition.maybeUpdateResponseData.
        """
        must = self.partitions.get(where)
        if must is None:
            return has_error
        self.partitions[where] = has_error
        if has_records and not is_first:
            del self.partitions[where]
            self.partitions[where] = has_error
        return must or has_records or has_error


class ShareSessionCache:
    """
    The sessions of one broker.

    Args:
        sessions_max: group.share.max.share.sessions.
        partitions_max: of all sessions together.
        on_end: called with a session that has ended, and whether its connection has.
    """

    def __init__(self, sessions_max: int, partitions_max: int, on_end: Callable[[ShareSession, bool], None]) -> None:
        self._sessions_max = sessions_max
        self._partitions_max = partitions_max
        self._on_end = on_end
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._of_group: dict[str, int] = {}
        self.partitions = 0
        """Partitions of all sessions."""

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._of_group

    def open(self, group_id: str, member_id: str, named: Iterable[TopicIdPartition]) -> ShareSession:
        """
        Open a session in the place of the one that the member has. Locks of the old one stay.

        Raises:
            CoordinatorError: SHARE_SESSION_LIMIT_REACHED.
        """
        old = self._sessions.get((group_id, member_id))
        if old is not None:
            self._remove(old)
        session = ShareSession(group_id, member_id)
        if len(self._sessions) >= self._sessions_max:
            raise CoordinatorError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self.add(session, named)
        self._sessions[group_id, member_id] = session
        self._of_group[group_id] = self._of_group.get(group_id, 0) + 1
        return session

    def find(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """
        The session of a request with an epoch other than `INITIAL_EPOCH`. The epoch is raised.

        Raises:
            CoordinatorError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise CoordinatorError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise CoordinatorError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.raise_epoch()
        return session

    def add(self, session: ShareSession, named: Iterable[TopicIdPartition]) -> None:
        """
        Add partitions to a session.

        Raises:
            CoordinatorError: SHARE_SESSION_LIMIT_REACHED, for the partitions of all sessions.
        """
        for where in named:
            if where not in session.partitions:
                if self.partitions >= self._partitions_max:
                    raise CoordinatorError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
                self.partitions += 1
                session.partitions[where] = True

    def remove(self, session: ShareSession, forgotten: Iterable[TopicIdPartition]) -> None:
        """Take partitions out of a session."""
        for where in forgotten:
            if session.partitions.pop(where, None) is not None:
                self.partitions -= 1

    def close(self, session: ShareSession, *, is_lost: bool = False) -> None:
        """End a session, unless it has ended."""
        if not session.is_closed:
            self._remove(session)
            self._on_end(session, is_lost)

    def clear(self) -> None:
        """End all sessions, as a restart does: nobody is told."""
        for session in list(self._sessions.values()):
            self._remove(session)

    def _remove(self, session: ShareSession) -> None:
        session.is_closed = True
        session.forget()
        session.forget = _nothing
        self.partitions -= len(session.partitions)
        del self._sessions[session.group_id, session.member_id]
        left = self._of_group[session.group_id] - 1
        if left:
            self._of_group[session.group_id] = left
        else:
            del self._of_group[session.group_id]
