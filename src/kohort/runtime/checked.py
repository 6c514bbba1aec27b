"""
Contexts that refuse changes of state outside of `replay`, for tests of shards.

Such a change is lost by a restart, and nobody sees that before. The mark of an operation knows which timeline structures the
operation has changed. Plain attributes of the shard are compared with copies, so an operation costs what its shard is large.
"""

from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeVar

from kohort.machine.shard import Producer, Reply, Result, Shard
from kohort.machine.steps import Operation
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet
from kohort.model.errors import InvariantError
from kohort.runtime.context import Context
from kohort.runtime.threaded.context import ThreadedContext
from kohort.runtime.waits import Armed, DueTable, Waiting

S = TypeVar("S", bound=Shard[Any])
T = TypeVar("T")

_PLAIN: Final = (dict, list, set, tuple, str, bytes, int, float, bool, type(None))
_MISSING: Final[Any] = object()


class CheckedContext(Context[S]):
    def write(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        producer: Producer | None = None,
    ) -> T | None:
        return super().write(Operation(_run_checked, self, operation), reply, on_error, producer)

    def _run_due(self, operation: Operation, table: DueTable[Any], entry: Waiting | Armed) -> None:
        super()._run_due(Operation(_run_checked, self, operation), table, entry)


class CheckedThreadedContext(ThreadedContext[S]):
    def write(
        self,
        operation: Callable[[S, int], Result[Any, T]],
        reply: Reply[T] | None,
        on_error: Callable[[Exception], T],
        producer: Producer | None = None,
    ) -> T | None:
        return super().write(Operation(_run_checked, self, operation), reply, on_error, producer)

    def _run_due(self, operation: Operation, table: DueTable[Any], entry: Waiting | Armed) -> None:
        super()._run_due(Operation(_run_checked, self, operation), table, entry)


def _run_checked(shard: Any, now_ms: int, context: Context[Any], operation: Callable[[Any, int], Any]) -> Any:
    """
    Run an operation.

    Raises:
        InvariantError: it has changed state that is not soft.
        TypeError: it has returned something else than a `Result`.
    """
    before = _plain_attributes(shard)
    result = operation(shard, now_ms)
    name = repr(operation) if isinstance(operation, Operation) else "an operation"
    if not isinstance(result, Result):
        raise TypeError(f"{name} returned {type(result).__name__}, and not a Result(records, response)")
    changed = _changed_timeline(shard, context) or _changed_plain(before, _plain_attributes(shard))
    if changed is not None:
        raise InvariantError(
            f"{name} changed {type(shard).__name__}.{changed} outside of "
            "replay, so a restart would lose the change: return a record, and change the state in replay. State that need not "
            "survive a restart is named in soft_state"
        )
    return result


def _plain_attributes(shard: Any) -> dict[str, Any]:
    return {name: copy(value) for name, value in _attributes(shard).items() if type(value) in _PLAIN}


def _attributes(shard: Any) -> dict[str, Any]:
    soft = getattr(shard, "soft_state", ())
    return {name: value for name, value in getattr(shard, "__dict__", {}).items() if name not in soft}


def _changed_plain(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    for name in before | after:
        if before.get(name, _MISSING) != after.get(name, _MISSING):
            return name
    return None


def _changed_timeline(shard: Any, context: Context[Any]) -> str | None:
    mark = context.position.registry.newest
    changed = () if mark is None else mark.deltas.values()
    for structure, delta in changed:
        for name, value in _attributes(shard).items():
            if delta and _holds(value, structure):
                return f"{name}[{next(iter(delta))!r}]" if value is structure and type(value) is TimelineDict else name
    return None


def _holds(value: Any, structure: object) -> bool:
    """Whether a structure is the value of an attribute, or a part of it."""
    found, seen = [value], set()
    while found:
        each = found.pop()
        if each is structure:
            return True
        # The runtime's own objects hold the waits and deadlines, which operations may change; a registry holds everything.
        if id(each) in seen or isinstance(each, SnapshotRegistry) or type(each).__module__.startswith("kohort.runtime"):
            continue
        seen.add(id(each))
        if isinstance(each, dict | TimelineDict):
            found += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            found += each
        elif isinstance(each, TimelineSet):
            found.append(each._elements)
        elif not isinstance(each, type) and not callable(each):
            found += getattr(each, "__dict__", {}).values()
            found += [getattr(each, name) for name in getattr(each, "__slots__", ()) if hasattr(each, name)]
    return False
