"""
Calls of the persister for many share partitions: some at a time, and one answer when all are done.

Kafka sends one request for all of them. Here each is an operation of a shard in this process.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar
from uuid import UUID

from kohort.group.assignors.specs import Assignment
from kohort.machine.ports import Persister, SharePartitionKey
from kohort.model.errors import CoordinatorError

T = TypeVar("T")
A = TypeVar("A")

CALLS_AT_ONCE: Final = 64


class Calls(Generic[T, A]):
    """
    Args:
        call: begins the call for one item; its answer may come at once.
        finished: gets the answers, in the order of the items.
    """

    def __init__(
        self,
        items: Sequence[T],
        call: Callable[[T, Callable[[A], None]], None],
        finished: Callable[[list[A]], None],
    ) -> None:
        self._items: Final = items
        self._call: Final = call
        self._finished: Final = finished
        self._answers: Final[dict[int, A]] = {}
        self._next = 0
        self._is_calling = False

    def run(self) -> None:
        """Begin as many calls as may be under way. An answer that comes at once does not begin the next one within itself."""
        if self._is_calling:
            return
        self._is_calling = True
        while self._next < len(self._items) and self._next - len(self._answers) < CALLS_AT_ONCE:
            index = self._next
            self._next += 1
            self._call(self._items[index], lambda answer, index=index: self._answered(index, answer))  # type: ignore[misc]
        self._is_calling = False
        if len(self._answers) == len(self._items):
            self._finished([self._answers[index] for index in range(len(self._items))])

    def _answered(self, index: int, answer: A) -> None:
        self._answers[index] = answer
        self.run()


def keys_of(group_id: str, partitions: Assignment) -> list[SharePartitionKey]:
    return [SharePartitionKey(group_id, topic_id, each) for topic_id, numbers in partitions.items() for each in numbers]


def assignment_of_keys(keys: Iterable[SharePartitionKey]) -> Assignment:
    """The partitions of one group, by topic."""
    found: dict[UUID, list[int]] = {}
    for key in keys:
        found.setdefault(key.topic_id, []).append(key.partition)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in found.items()}


def delete(
    persister: Persister,
    keys: Sequence[SharePartitionKey],
    finished: Callable[[list[CoordinatorError | None]], None],
) -> None:
    """Delete the states of share partitions."""
    Calls(keys, persister.delete, finished).run()


def initialize(
    persister: Persister,
    state_epoch: int,
    start_offsets: Sequence[tuple[SharePartitionKey, int]],
    finished: Callable[[list[CoordinatorError | None]], None],
) -> None:
    """Make the states of share partitions anew, each with its start offset."""
    Calls(
        start_offsets,
        lambda item, done: persister.initialize(item[0], state_epoch, item[1], done),
        finished,
    ).run()
