"""
Commits the positions of a Spark query to a consumer group, on a thread of its own: the query neither waits nor fails.

Only the newest position counts, so a broker that is away costs nothing but the positions in between. A group with live members
is refused by its coordinator, and then nothing more is committed: the offsets belong to these members.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kohort.client.cluster import Client
from kohort.client.commits import NewOffset, commit_offsets
from kohort.client.security import Security
from kohort.model.errors import ConfigError, CoordinatorError, CorruptError, ErrorCode, WireError
from kohort.model.ids import TopicPartition

_log: Final = logging.getLogger("kohort.pipeline.CommitOffsets")

TIMEOUT_S: Final = 10.0
PAUSE_FIRST_S: Final = 0.5
PAUSE_LAST_S: Final = 30.0
BEHIND_S: Final = 60.0
"""The age of the oldest position that is not committed, from which on the log says so."""
_CLIENT_ID: Final = "kohort-commit-offsets"
_LIVE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""Errors of a commit without membership to a group that has members."""
_FAILURES: Final = (ConfigError, CoordinatorError, CorruptError, WireError, OSError)


class Finished(NamedTuple):
    """A finished batch of a query, and its end offsets."""

    query_id: str
    batch: int
    offsets: Mapping[TopicPartition, int]


class Committer:
    """
    Commits the newest of the positions that it is given.

    Attributes:
        committed: the last batch that was committed; None before the first one.
        is_refused: the group has members of its own, and nothing is committed any more.
    """

    def __init__(self, group: str, bootstrap_servers: str, security: Security) -> None:
        """
        Raises:
            ConfigError: `bootstrap_servers` is not a list of addresses.
        """
        self.committed: Finished | None = None
        self.is_refused = False
        self._group = group
        self._open: Callable[[], Client] = lambda: Client(bootstrap_servers, TIMEOUT_S, security, client_id=_CLIENT_ID)
        self._open().close()
        self._changed = threading.Condition()
        self._pending: Finished | Callable[[], Finished | None] | None = None
        self._since_s = 0.0
        self._is_told = self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=_CLIENT_ID, daemon=True)
        self._thread.start()

    def put(self, finished: "Finished | Callable[[], Finished | None]") -> None:
        """Have a position committed, or that which a function finds, unless a newer one comes before."""
        with self._changed:
            if self._pending is None:
                self._since_s = time.monotonic()
            self._pending = finished
            self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything is committed, and tell whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._pending is None or self.is_refused, timeout_s)

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Commit what is left, but try for no longer than this."""
        self.flush(timeout_s)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        client: Client | None = None
        pause_s = PAUSE_FIRST_S
        while (wanted := self._next()) is not None:
            try:
                finished = wanted() if callable(wanted) else wanted
                if finished is not None:
                    client = client or self._open()
                    self._commit(client, finished)
                    self.committed = finished
            except Exception as exc:  # noqa: BLE001  (the query goes on, whatever happens here)
                if client is not None:
                    client.close()
                    client = None
                if self.is_refused:
                    _log.error("%s", exc)
                    break
                if not isinstance(exc, _FAILURES):
                    _log.exception("A position was not committed.")
                self._tell(exc)
                self._wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_LAST_S)
                continue
            pause_s = PAUSE_FIRST_S
            self._done(wanted)
        if client is not None:
            client.close()
        with self._changed:
            self._changed.notify_all()

    def _next(self) -> "Finished | Callable[[], Finished | None] | None":
        with self._changed:
            self._changed.wait_for(lambda: self._pending is not None or self._is_closed)
            return None if self._is_closed else self._pending

    def _commit(self, client: Client, finished: Finished) -> None:
        metadata = f"spark query {finished.query_id} batch {finished.batch}"
        new = {place: NewOffset(offset, metadata=metadata) for place, offset in finished.offsets.items()}
        codes = commit_offsets(client, self._group, new) if new else {}
        if any(code in _LIVE for code in codes.values()):
            self.is_refused = True
            raise ConfigError(
                f"group {self._group} has members of its own, so the positions of query {finished.query_id} are not committed"
                " to it; choose another group"
            )
        for place, code in codes.items():
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                # The topic was deleted, and the others are committed.
                continue
            raise CoordinatorError(ErrorCode(code), f"{place} of group {self._group}: {ErrorCode(code).name}")

    def _done(self, wanted: object) -> None:
        with self._changed:
            if self._pending is wanted:
                self._pending = None
            self._since_s = time.monotonic()
            if self._is_told:
                self._is_told = False
                _log.warning("Group %s is up to date again.", self._group)
            self._changed.notify_all()

    def _tell(self, exc: Exception) -> None:
        """Say once that the group falls behind its query."""
        behind_s = time.monotonic() - self._since_s
        if behind_s >= BEHIND_S and not self._is_told:
            self._is_told = True
            last = "none" if self.committed is None else str(self.committed.batch)
            _log.warning(
                "Group %s is %.0f s behind its query (last committed batch: %s): %s", self._group, behind_s, last, exc
            )

    def _wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)
