"""
The share coordinators, as the group coordinator and leaders of partitions ask them: look-up, and attempts with a back-off.

Within one process every coordinator is asked by a call, and other nodes by a request. Kafka sends requests also to its own
node, and joins waiting ones of the same kind; two writes of one share partition then have one answer. Here each call has its
own.

Source: Kafka DefaultStatePersister, PersisterStateManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.ports import CallLater
from kohort.broker.topics.creation import TopicCreation
from kohort.machine.ports import Persister, SharePartitionKey, SharePartitionState
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import SHARE_GROUP_STATE

A = TypeVar("A", SharePartitionState | CoordinatorError, CoordinatorError | None)
"""The answer of a share coordinator."""

RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 30_000
ATTEMPTS_MAX: Final = 5
CREATION_MS: Final = 50
"""The pause after the creation of the topic; Kafka waits for `RETRY_MS_MIN`."""
MAY_PASS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The errors after which a share coordinator is asked again."""


class RepeatingPersister:
    """
    A `kohort.machine.ports.Persister` over one that tries once. The first call creates the topic of the share coordinator.

    Args:
        persister: returns the one that tries once; None without a share coordinator.
    """

    def __init__(
        self,
        persister: Callable[[], Persister | None],
        catalog: Catalog,
        creation: TopicCreation,
        call_later: CallLater,
    ) -> None:
        self._persister = persister
        self._catalog = catalog
        self._creation = creation
        self._call_later = call_later

    def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: int,
        done: Callable[[CoordinatorError | None], None],
        /,
    ) -> None:
        self._begin(
            "initialize state",
            lambda persister, answered: persister.initialize(key, state_epoch, start_offset, answered),
            done,
        )

    def read(
        self,
        key: SharePartitionKey,
        leader_epoch: int,
        done: Callable[[SharePartitionState | CoordinatorError], None],
        /,
    ) -> None:
        self._begin("read state", lambda persister, answered: persister.read(key, leader_epoch, answered), done)

    def write(
        self, key: SharePartitionKey, state: SharePartitionState, done: Callable[[CoordinatorError | None], None], /
    ) -> None:
        self._begin("write state", lambda persister, answered: persister.write(key, state, answered), done)

    def delete(self, key: SharePartitionKey, done: Callable[[CoordinatorError | None], None], /) -> None:
        self._begin("delete state", lambda persister, answered: persister.delete(key, answered), done)

    def summary(
        self, key: SharePartitionKey, done: Callable[[SharePartitionState | CoordinatorError], None], /
    ) -> None:
        self._begin("read state summary", lambda persister, answered: persister.summary(key, answered), done)

    def _begin(
        self,
        name: str,
        ask: Callable[[Persister, Callable[[A], None]], None],
        done: Callable[[A], None],
    ) -> None:
        coordinator = self._persister()
        if coordinator is not None and self._catalog.topic(SHARE_GROUP_STATE) is None:
            self._creation.auto_create(SHARE_GROUP_STATE)
            self._call_later(CREATION_MS, lambda: self._attempt(name, ask, done, 1))
        else:
            self._attempt(name, ask, done, 1)

    def _attempt(
        self,
        name: str,
        ask: Callable[[Persister, Callable[[A], None]], None],
        done: Callable[[A], None],
        attempt: int,
    ) -> None:
        """Ask once, and again later if the answer may pass."""

        def answered(answer: A) -> None:
            if not isinstance(answer, CoordinatorError):
                done(answer)
            elif answer.code in MAY_PASS and attempt < ATTEMPTS_MAX:
                delay_ms = min(RETRY_MS_MIN << (attempt - 1), RETRY_MS_MAX)
                self._call_later(delay_ms, lambda: self._attempt(name, ask, done, attempt + 1))
            else:
                done(CoordinatorError(answer.code, f"Error in {name} RPC. {answer.message}"))

        coordinator = self._persister()
        if coordinator is None:
            done(CoordinatorError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available."))
        else:
            ask(coordinator, answered)
