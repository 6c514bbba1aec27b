"""Reads of a load on another thread, before they are needed: of a log whose `read` waits for another machine."""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from kohort.model.errors import UnavailableError
from kohort.runtime.ports import LogView, PartitionLog
from kohort.runtime.processors import PartitionExecutor

_Outcome: TypeAlias = tuple[bytes, int] | Exception


class ReadAhead:
    """
    The reads of a load, each begun when the one before is taken. All methods are called under the exclusivity of the partition.

    Args:
        executor: of the partition; it runs the reads in the background.
    """

    def __init__(self, name: object, view: LogView, executor: PartitionExecutor) -> None:
        self._name = name
        self._view = view
        self._executor = executor
        self._offset = -1
        """Where the read that is wanted begins."""
        self._outcome: _Outcome | None = None
        self._resume: Callable[[], None] | None = None

    def read(self, offset: int, bytes_max: int, up_to: int) -> bytes | None:
        """
        As `PartitionLog.read`; None if the batches are not here yet.

        Raises:
            StorageError: the log cannot be read.
        """
        if offset != self._offset:
            self._begin(offset, bytes_max, up_to)
        outcome, self._outcome = self._outcome, None
        if outcome is None:
            return None
        self._offset = -1
        if isinstance(outcome, OSError):
            raise UnavailableError(f"{self._name} cannot be read: {outcome}") from outcome
        if isinstance(outcome, Exception):
            raise outcome
        data, next_offset = outcome
        if next_offset < up_to:
            self._begin(next_offset, bytes_max, up_to)
        return data

    def when_read(self, resume: Callable[[], None]) -> None:
        """Call `resume` when what `read` did not have is here."""
        self._resume = resume

    def _begin(self, offset: int, bytes_max: int, up_to: int) -> None:
        self._offset, self._outcome = offset, None
        self._executor.run_in_background(partial(self._read, offset, bytes_max, up_to))

    def _read(self, offset: int, bytes_max: int, up_to: int) -> None:
        """On the background thread."""
        outcome: _Outcome
        try:
            outcome = self._view.read_on(offset, bytes_max, up_to)
        except Exception as error:  # noqa: BLE001 -- raised again by `read`
            outcome = error
        self._executor.call_soon_threadsafe(partial(self._end, offset, outcome))

    def _end(self, offset: int, outcome: _Outcome) -> None:
        if offset != self._offset:
            return
        self._outcome = outcome
        resume, self._resume = self._resume, None
        if resume is not None:
            resume()


Pause: TypeAlias = ReadAhead | None
"""Why a load pauses: for a read; None if it is the turn of others."""


def read_ahead(log: PartitionLog, executor: PartitionExecutor) -> ReadAhead | None:
    """The reads of a load on another thread; None if `read` of the log waits for no other machine."""
    view = log.load_view()
    return None if view is None else ReadAhead(log.topic_partition, view, executor)
