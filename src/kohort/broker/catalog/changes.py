"""
Requests that change the catalog: each element is decided by itself, the accepted ones are written together, and all are
answered when the change is durable.

A handler refuses a request with a timeout of 0 or below before it changes anything: Kafka's controller drops what has expired
when its turn comes, and answers REQUEST_TIMED_OUT for the whole request.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from kohort.broker.catalog.catalog import NO_CHANGE, Catalog
from kohort.broker.catalog.view import CatalogChange
from kohort.broker.ports import FLUSH_MS_MIN, CallLater
from kohort.machine.response_aggregation import ResponseAggregator
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode

E = TypeVar("E")
P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")

DEFAULT_TIMEOUT_MS: Final = 30_000
"""For requests without a timeout. Source: the default request timeout of Kafka's clients."""

Decided: TypeAlias = Sequence[tuple[E, T | CoordinatorError]]
"""Elements of a request, each with what it becomes or why it is refused."""


def decide_each(elements: Iterable[E], decide: Callable[[E], T]) -> Decided[E, T]:
    """Decide each element; `decide` raises CoordinatorError to refuse it."""
    decided: list[tuple[E, T | CoordinatorError]] = []
    for element in elements:
        try:
            decided.append((element, decide(element)))
        except CoordinatorError as error:
            # A traceback would make a cycle, which only the garbage collector frees.
            decided.append((element, error.with_traceback(None)))
    return decided


def accepted(decided: Decided[E, T], kind: type[R]) -> tuple[R, ...]:
    """The accepted entries of one kind."""
    return tuple(outcome for _, outcome in decided if isinstance(outcome, kind))


def verdict(outcome: object, code: ErrorCode) -> tuple[ErrorCode, str | None]:
    """Error code and message of an element: those of its refusal, or what became of the change."""
    return (outcome.code, outcome.message) if isinstance(outcome, CoordinatorError) else (code, None)


class Changes:
    """Changes of the catalog that requests wait for."""

    def __init__(self, catalog: Catalog, call_later: CallLater) -> None:
        self._catalog = catalog
        self._call_later = call_later

    def make(
        self, change: CatalogChange, timeout_ms: int, response: Callable[[ErrorCode], T], reply: Reply[T]
    ) -> T | None:
        """
        Change the catalog. Without anything to change, return `response(NONE)`. Else `reply(response(code))` is called once:
        when the change is durable or has failed, or after the timeout, or `FLUSH_MS_MIN` if that is more; the change may still
        become durable after that.
        """
        if change == NO_CHANGE:
            return response(ErrorCode.NONE)
        is_open = True

        def finish(code: ErrorCode) -> None:
            nonlocal is_open
            if is_open:
                is_open = False
                cancel()
                reply(response(code))

        cancel = self._call_later(max(timeout_ms, FLUSH_MS_MIN), lambda: finish(ErrorCode.REQUEST_TIMED_OUT))
        self._catalog.change(change, finish)
        return None

    def make_in_parts(
        self,
        parts: Sequence[P],
        decide: Callable[[P], tuple[CatalogChange, Callable[[ErrorCode], list[T]]]],
        timeout_ms: int,
        response: Callable[[list[T]], R],
        reply: Reply[R],
    ) -> Generator[None, None, R | None]:
        """
        Decide and change some elements at a time, and answer when all changes are durable.

        Args:
            decide: returns the change of a part, and a function from its code to the results of the part.
            response: makes the response of the results of all parts.
        """
        aggregator: ResponseAggregator[list[T], R] = ResponseAggregator(
            len(parts), lambda done: response([result for part in done for result in part]), reply
        )
        for index, part in enumerate(parts):
            change, results = decide(part)
            aggregator.put(index, self.make(change, timeout_ms, results, aggregator.reply_to(index)))
            yield
        return aggregator.finish()
