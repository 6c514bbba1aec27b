"""A persister that is as unreliable as a network."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kohort.machine.ports import Persister, SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.testing.virtual import VirtualNode

if TYPE_CHECKING:
    from tests.broker.shares.work_queue_simulation import Queue

_LOST: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.UNKNOWN_SERVER_ERROR)
_DELAYS_MS: Final = (0, 0, 5, 200, 3000)


class Late:
    """
    A `Persister` in front of the share coordinators.

    Attributes:
        is_calm: from now on nothing is late or lost.
    """

    def __init__(self, below: Persister, node: VirtualNode, queue: Queue) -> None:
        self._below = below
        self._node = node
        self._queue = queue
        self.is_calm = False

    def _call(self, begin: Callable[[Callable[[Any], None]], None], done: Callable[[Any], None]) -> None:
        chance = self._queue.chance
        trouble = 1.0 if self.is_calm else chance.random()
        lost = partial(done, CoordinatorError(chance.choice(_LOST), "lost"))
        if trouble < 0.04:
            self._after(lost)
        elif trouble < 0.1:
            begin(lambda _answer: self._after(lost))
        else:
            self._after(lambda: begin(lambda answer: self._after(partial(done, answer))))

    def _after(self, action: Callable[[], None]) -> None:
        delay_ms = 0 if self.is_calm else self._queue.chance.choice(_DELAYS_MS)
        if delay_ms:
            self._node.call_later(delay_ms, action)
        else:
            action()

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, done: Any, /) -> None:
        self._call(partial(self._below.initialize, key, state_epoch, start_offset), done)

    def read(self, key: SharePartitionKey, leader_epoch: int, done: Any, /) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, SharePartitionState):
                self._queue.on_read(key, answer, lambda: done(answer))
            else:
                done(answer)

        self._call(partial(self._below.read, key, leader_epoch), answered)

    def write(self, key: SharePartitionKey, state: SharePartitionState, done: Any, /) -> None:
        def begin(answered: Callable[[Any], None]) -> None:
            self._queue.on_write(key, state)
            self._below.write(key, state, answered)

        self._call(begin, done)

    def delete(self, key: SharePartitionKey, done: Any, /) -> None:
        self._call(partial(self._below.delete, key), done)

    def summary(self, key: SharePartitionKey, done: Any, /) -> None:
        self._call(partial(self._below.summary, key), done)
