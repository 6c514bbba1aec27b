"""Handlers that work in steps."""

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, Generic, TypeVar

K = TypeVar("K")
P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

HANDLER_STEP: Final = 200
"""Cheap elements (a name, a partition) between two yields of a handler."""
CHUNK: Final = 25
"""Expensive elements (a topic to create) between two yields."""
LOOK_STEP: Final = 1_024
"""Elements that are only looked at, between two yields."""


def chunks(elements: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Cut a sequence into pieces; there is one piece at least."""
    for low in range(0, max(len(elements), 1), size):
        yield elements[low : low + size]


def repeated(elements: Iterable[H]) -> Generator[None, None, set[H]]:
    """Find, in steps, the elements that occur more than once."""
    seen: set[H] = set()
    found: set[H] = set()
    for number, element in enumerate(elements):
        if element in seen:
            found.add(element)
        else:
            seen.add(element)
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
    return found


def distinct(elements: Iterable[H]) -> Generator[None, None, tuple[H, ...]]:
    """Return, in steps, each element once, in the order of the first occurrences."""
    found: dict[H, None] = {}
    for number, element in enumerate(elements):
        found[element] = None
        if number % LOOK_STEP == LOOK_STEP - 1:
            yield
    return tuple(found)


def gathered(elements: Iterable[T], step: int = HANDLER_STEP) -> Generator[None, None, list[T]]:
    """Return, in steps, a list of elements that are made one by one."""
    found: list[T] = []
    for element in elements:
        found.append(element)
        if len(found) % step == 0:
            yield
    return found


def has_any(conditions: Iterable[bool]) -> Generator[None, None, bool]:
    """Whether one of the conditions, which are looked at in steps, is true."""
    for number, condition in enumerate(conditions, 1):
        if condition:
            return True
        if number % LOOK_STEP == 0:
            yield
    return False


def gathered_by_topic(
    wanted: Iterable[tuple[K, Iterable[P]]],
    answer: Callable[[K, P], T | None],
    combine: Callable[[K, list[T]], R | None],
) -> Generator[None, None, list[R]]:
    """
    Answer, in steps, the partitions of each topic, and then the topic. What has the answer None is left out.

    Args:
        wanted: topics, each with its partitions.
        answer: makes the answer of a topic's partition.
        combine: makes the answer of a topic of those of its partitions.
    """
    results: list[R] = []
    count = 0
    for topic, partitions in wanted:
        answers: list[T] = []
        for partition in partitions:
            answered = answer(topic, partition)
            if answered is not None:
                answers.append(answered)
            count += 1
            if count % HANDLER_STEP == 0:
                yield
        result = combine(topic, answers)
        if result is not None:
            results.append(result)
        count += 1
        if count % HANDLER_STEP == 0:
            yield
    return results


class Stepwise:
    """
    A request handler in steps: one form for short and for long requests.

    `in_steps` is a generator function. Its generator yields None between two steps, or a function `wait(resume)`, as `Awaited`
    does, and returns the response. A call takes the steps of a short request at once; the server takes those of a long one in
    slices.

    Args:
        at_once: handles a short request in place of the steps, for an API whose requests are frequent and nearly all short.
        repeated: see `kohort.wire.templates.DecodedOnce`.
    """

    __slots__ = ("_at_once", "in_steps", "repeated")

    def __init__(
        self,
        in_steps: Callable[[Any, Any, Any], Generator[Any, None, Any]],
        at_once: Callable[[Any, Any, Any], Any] | None = None,
        repeated: Callable[[Any, Any, Any], Any] | None = None,
    ) -> None:
        self.in_steps = in_steps
        self._at_once = at_once
        self.repeated = repeated

    def __call__(self, request: Any, context: Any, reply: Any, /) -> Any:
        """Return the response, or None if it is given to `reply` later."""
        at_once = self._at_once
        if at_once is not None:
            return at_once(request, context, reply)
        return take_steps(self.in_steps(request, context, reply), reply)


class OneStep:
    """A handler that works in one step, however long its request is; the checks before it take several, as for `Stepwise`."""

    __slots__ = ("in_steps",)

    def __init__(self, handle: Callable[[Any, Any, Any], Any]) -> None:
        self.in_steps = handle

    def __call__(self, request: Any, context: Any, reply: Any, /) -> Any:
        return self.in_steps(request, context, reply)


def take_steps(steps: Generator[Any, None, T], reply: Callable[[T], object]) -> T | None:
    """
    Take all steps up to a wait, and the others when it ends. Return the result, or None if `reply` gets it later.

    The result goes through a generator and a list: compiled code takes six times as long to catch StopIteration.
    """
    results: list[T] = []
    return _go_on(_kept(results, steps), results, reply)


def _kept(results: list[T], steps: Generator[Any, None, T]) -> Generator[Any, None, None]:
    results.append((yield from steps))


def _go_on(steps: Generator[Any, None, None], results: list[T], reply: Callable[[T], object]) -> T | None:
    for wait in steps:
        if wait is not None:
            wait(partial(_take_more, steps, results, reply))
            return None
    return results[0]


def _take_more(steps: Generator[Any, None, None], results: list[T], reply: Callable[[T], object]) -> None:
    result = _go_on(steps, results, reply)
    if result is not None:
        reply(result)


class Awaited(Generic[T]):
    """
    The response of an operation for which a handler in steps waits: `yield from awaited.get(operation(awaited.reply))`.

    The response may come on any thread.
    """

    __slots__ = ("_first", "_response", "_resume")

    def __init__(self) -> None:
        self._response: T | None = None
        self._resume: Callable[[], None] | None = None
        self._first: list[None] = [None]
        """Taken by the first of two: the response, and the wait for it. `list.pop` is atomic."""

    def reply(self, response: T) -> None:
        """Take the response, if it comes later."""
        self._response = response
        try:
            self._first.pop()
        except IndexError:
            assert self._resume is not None, "an operation is answered once"
            self._resume()

    def get(self, response: T | None) -> Generator[Any, None, T]:
        """Return the response; None as argument stands for a response that comes later."""
        if response is not None:
            return response
        if self._response is None:
            yield self._wait
        assert self._response is not None, "the work goes on before its operation was answered"
        return self._response

    def _wait(self, resume: Callable[[], None]) -> None:
        self._resume = resume
        try:
            self._first.pop()
        except IndexError:
            resume()
