"""
A listener of Spark that commits the positions of a query to a consumer group, so that every tool for lag sees the query.

Spark calls it after a batch has finished: its commit is in the checkpoint, except with asynchronous progress tracking, which
writes that later. A batch that finished just before the driver was killed is committed when the query starts again, from the
checkpoint.

Source: Spark MicroBatchExecution (the commit log before `finishTrigger`, which posts the event), StreamingQueryListener.
"""

import json
import logging
import threading
import time
from typing import Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from kohort.client.security import Security
from kohort.model.errors import ConfigError
from kohort.pipeline.checkpoints.checkpoint import START, Extent, read_checkpoint
from kohort.pipeline.checkpoints.committer import Committer, Finished
from kohort.pipeline.checkpoints.files import files_of
from kohort.pipeline.checkpoints.formats import kafka_offsets

_log: Final = logging.getLogger("kohort.pipeline.CommitOffsets")
_FILE: Final = "file:"


class OffsetListener(StreamingQueryListener):  # type: ignore[misc]
    """The listener of `kohort.pipeline.CommitOffsets`. Its methods return at once, and raise nothing."""

    def __init__(
        self, group: str, bootstrap_servers: str, security: Security, *, query: str | None, checkpoint: str | None
    ) -> None:
        self._committer = Committer(group, bootstrap_servers, security)
        self._group, self._name, self._checkpoint = group, query, checkpoint
        self._query_id: str | None = None
        self._ended = threading.Event()
        self._ended.set()
        self._running = ""
        self._others: set[str] = set()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  (Spark's names)
        query_id = str(event.id)
        if self._is_mine(query_id, event.name):
            self._ended.clear()
            self._running = query_id
            self._committer.put(lambda: self._before(query_id))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        try:
            progress = json.loads(event.progress.json)
            if self._is_mine(progress["id"], progress.get("name")):
                self._committer.put(_finished(progress))
        except Exception:  # noqa: BLE001  (an exception would be Spark's)
            _log.exception("The progress of a query was not understood.")

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The last batch is committed meanwhile; `close` waits for it."""
        if str(event.id) == self._running:
            self._ended.set()

    def close(self, timeout_s: float = 10.0) -> None:
        """
        Commit what is left, after the query has ended and before the program ends.

        Spark tells of the last batch and of the end of the query some time after the query has ended.
        """
        until_s = time.monotonic() + timeout_s
        self._ended.wait(timeout_s)
        self._committer.close(max(until_s - time.monotonic(), 0.0))

    def _is_mine(self, query_id: str, name: str | None) -> bool:
        """Tell whether a query is the one whose positions the group has: that of a name, or the first one."""
        if self._name is not None:
            return name == self._name
        if self._query_id is None:
            self._query_id = query_id
        if query_id != self._query_id and query_id not in self._others:
            self._others.add(query_id)
            _log.warning(
                "Query %s is not committed to group %s, which has query %s: name it with query=...",
                name or query_id,
                self._group,
                self._query_id,
            )
        return query_id == self._query_id

    def _before(self, query_id: str) -> Finished | None:
        """Return the last finished batch before the query started; None if it had none, or if its checkpoint is not known."""
        path = self._checkpoint or _checkpoint_of(query_id)
        if path is None:
            return None
        path = path.removeprefix(_FILE) if path.startswith(_FILE) and not path.startswith(f"{_FILE}//") else path
        try:
            found = read_checkpoint(files_of(path, _session()), self._group, path, Extent.LAST)
        except ConfigError as exc:
            # A new query has no checkpoint yet.
            _log.info("The checkpoint of query %s is not read: %s", query_id, exc)
            return None
        return Finished(query_id, START if found.batch is None else found.batch, found.position)


def _finished(progress: dict[str, Any]) -> Finished:
    offsets: dict[Any, int] = {}
    for source in progress["sources"]:
        told = source.get("endOffset")
        found = kafka_offsets(json.loads(told) if isinstance(told, str) else told)
        if not isinstance(found, str):
            offsets |= {place: min(at, offsets.get(place, at)) for place, at in found.items()}
    return Finished(progress["id"], progress["batchId"], offsets)


def _session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or SparkSession._instantiatedSession


def _checkpoint_of(query_id: str) -> str | None:
    """Return the checkpoint of a running query, as far as the session lets its JVM be asked."""
    try:
        query = _session()._jsparkSession.streams().get(query_id)
        return str(query.streamingQuery().resolvedCheckpointRoot())
    except Exception as exc:  # noqa: BLE001  (Spark Connect has no JVM, and says so in an exception of its version)
        _log.info("The checkpoint of query %s is unknown, name it with checkpoint=...: %s", query_id, exc)
        return None
