"""High watermarks of logs in memory, which wait for no flush."""

from typing import Protocol

from kohort.runtime.ports import Defer


class _Advancing(Protocol):
    end_offset: int

    def advance(self, high_watermark: int) -> None: ...


class Watermarks:
    """Advances the high watermarks of all logs that were appended to in a turn, in one deferred call."""

    def __init__(self, defer: Defer) -> None:
        self.defer = defer
        self._behind: list[_Advancing] = []

    @property
    def is_empty(self) -> bool:
        return not self._behind

    def add(self, log: _Advancing) -> None:
        if not self._behind:
            self.defer(self.advance_all)
        self._behind.append(log)

    def advance_all(self) -> None:
        behind, self._behind = self._behind, []
        for log in behind:
            log.advance(log.end_offset)
