"""
Timeline structures: collections that can be read, and reverted, as of an earlier log offset.

Epochs are log offsets. A snapshot at epoch E shows every change made before the snapshot was taken, and none made after. The
newest state is a plain `dict` (or set, or attribute), so a read costs what it costs there. A change after a snapshot adds the
old value to a list of that snapshot. Only when somebody looks at the past, the list becomes the deltas of the structures: most
snapshots are dropped before. Taking a snapshot costs the same at any size, dropping one costs what has changed since it was
taken, and nothing refers to a dropped snapshot.

Source: Kafka org.apache.kafka.timeline (SnapshotRegistry, TimelineHashMap, TimelineHashSet, TimelineObject).
"""

from bisect import bisect_left
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from functools import partial
from itertools import repeat
from typing import Any, Final, Generic, Protocol, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_NO_EPOCH: Final = -1
_CHANGES_MAX: Final = 4_000
"""So many changes are sorted by structure: a key that changes again and again while the log hangs has one old value."""
_ABSENT: Final[Any] = object()
"""A delta's value for a key that did not exist."""


class _Revertable(Protocol):
    """A structure that can restore the old values of a delta."""

    def _restore(self, delta: dict[Any, Any], /) -> None: ...


class _Snapshot:
    """One epoch with the values overwritten after this snapshot and before the next one."""

    __slots__ = ("_deltas", "changes", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.changes: list[tuple[_Revertable, Any, Any]] = []
        """Structure, key and old value of each change that is not in the deltas yet, in order."""
        self._deltas: dict[int, tuple[_Revertable, dict[Any, Any]]] = {}
        """By identity of the structure, which each entry keeps alive."""

    @property
    def deltas(self) -> dict[int, tuple[_Revertable, dict[Any, Any]]]:
        """The structures that were changed, with their old values by key."""
        if self.changes:
            self._sort()
        return self._deltas

    def delta_of(self, structure: _Revertable) -> dict[Any, Any]:
        deltas = self.deltas
        entry = deltas.get(id(structure))
        if entry is None:
            entry = deltas[id(structure)] = (structure, {})
        return entry[1]

    def absorb(self, later: "_Snapshot") -> None:
        """Take over the old values of a later snapshot; the values that this snapshot has are older, and stay."""
        for structure, delta in later._deltas.values():
            mine = self.delta_of(structure)
            for key, value in delta.items():
                mine.setdefault(key, value)
        self.changes += later.changes
        if len(self.changes) > _CHANGES_MAX:
            self._sort()

    def _sort(self) -> None:
        changes, self.changes = self.changes, []
        for structure, key, old in changes:
            self.delta_of(structure).setdefault(key, old)


class SnapshotRegistry:
    """
    The snapshots of one shard, oldest first. Each structure is made with a registry, and reports its changes to the newest
    snapshot.

    An operation runs at a mark (`begin`), which takes the old values of what it changes. Then it is undone (`undo`), or its
    changes join those since the last snapshot (`end`); a snapshot that is taken meanwhile is one of the state before the
    operation. An operation without changes costs some assignments.

    Without snapshots nobody can read, or revert to, an earlier state, and every read sees the newest one.

    Not thread-safe: the thread that runs the shard's operations also takes and drops the snapshots.
    """

    __slots__ = ("_last", "_mark", "_snapshots", "newest")

    def __init__(self) -> None:
        self._snapshots: list[_Snapshot] = []
        self._last: _Snapshot | None = None
        """The last one of `_snapshots`."""
        self._mark = _Snapshot(_NO_EPOCH)
        """Takes the old values of an operation. Another one replaces it as soon as it has some."""
        self.newest: _Snapshot | None = None
        """The place of the old values: the mark during an operation, else the last snapshot; None if neither is there."""

    @property
    def epochs(self) -> tuple[int, ...]:
        return tuple(snapshot.epoch for snapshot in self._snapshots)

    # -- operations --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin an operation."""
        self.newest = self._mark

    def undo(self) -> None:
        """Undo the changes of the operation; no effect if it has ended."""
        mark = self._mark
        if self.newest is mark:
            self.newest = self._last
            if mark.changes or mark._deltas:
                self._mark = _Snapshot(_NO_EPOCH)
                for structure, delta in mark.deltas.values():
                    structure._restore(delta)

    def end(self) -> None:
        """Keep the changes of the operation, as changes since the last snapshot; no effect if it has ended."""
        mark = self._mark
        if self.newest is mark:
            last = self.newest = self._last
            if mark.changes or mark._deltas:
                self._mark = _Snapshot(_NO_EPOCH)
                if last is not None:
                    last.absorb(mark)

    # -- snapshots ---------------------------------------------------------------------------------------------

    def create(self, epoch: int) -> None:
        """
        Take a snapshot of the current state at `epoch`, or of the state before the operation; no effect if the last snapshot is
        at that epoch.

        Raises:
            ValueError: there is a snapshot at a higher epoch.
        """
        last = self._last
        if last is not None and epoch <= last.epoch:
            if epoch == last.epoch:
                return
            raise ValueError(f"cannot take a snapshot at {epoch}: the newest is at {last.epoch} of {self._listing()}")
        self._snapshots.append(_Snapshot(epoch))
        self._find_last()

    def delete(self, epoch: int) -> None:
        """
        Drop one snapshot. Its old values pass to the snapshot before it.

        Raises:
            KeyError: there is no snapshot at `epoch`.
        """
        index = self._index(epoch)
        if index > 0:
            self._snapshots[index - 1].absorb(self._snapshots[index])
        self._snapshots.pop(index)
        self._find_last()

    def delete_up_to(self, epoch: int) -> None:
        """Drop every snapshot below `epoch`."""
        snapshots = self._snapshots
        while snapshots and snapshots[0].epoch < epoch:
            snapshots.pop(0)
        self._find_last()

    def _find_last(self) -> None:
        is_marked = self.newest is self._mark
        self._last = self._snapshots[-1] if self._snapshots else None
        if not is_marked:
            self.newest = self._last

    def revert_to(self, epoch: int) -> None:
        """
        Restore the state of every structure at `epoch`. That snapshot stays; later ones, and the operation, are dropped.

        Raises:
            KeyError: there is no snapshot at `epoch`.
        """
        index = self._index(epoch)
        self.undo()
        snapshot = self._snapshots[index]
        for later in self._snapshots[index + 1 :]:
            snapshot.absorb(later)
        del self._snapshots[index + 1 :]
        self.newest = self._last = self._snapshots[index] = _Snapshot(epoch)
        for structure, delta in snapshot.deltas.values():
            structure._restore(delta)

    def deltas(self, structure: _Revertable, epoch: int) -> Iterator[dict[Any, Any]]:
        """
        Yield the deltas of one structure since `epoch`, oldest first: none if there is no snapshot from `epoch` on.

        Raises:
            KeyError: there is no snapshot at `epoch`, but a later one.
        """
        later = self._snapshots
        if later:
            later = later[self._index(epoch) :] if later[-1].epoch >= epoch else []
        for snapshot in [*later, self._mark] if self.newest is self._mark else later:
            entry = snapshot.deltas.get(id(structure))
            if entry is not None:
                yield entry[1]

    def _index(self, epoch: int) -> int:
        index = bisect_left(self._snapshots, epoch, key=lambda snapshot: snapshot.epoch)
        if index == len(self._snapshots) or self._snapshots[index].epoch != epoch:
            raise KeyError(f"no snapshot at epoch {epoch}; there are {self._listing()}")
        return index

    def _listing(self) -> str:
        return ", ".join(map(str, self.epochs)) or "none"


def _with_past(present: Iterable[tuple[K, V]], past: dict[K, V]) -> Iterator[tuple[K, V]]:
    for pair in present:
        if pair[0] not in past:
            yield pair
    for key, value in past.items():
        if value is not _ABSENT:
            yield key, value


class TimelineDict(MutableMapping[K, V]):
    """
    A dict that can be read, and reverted, as of a snapshot.

    The newest state is a `dict`. It is no base class, because compiled code finds the methods and attributes of such a class by
    name. Values must not be changed in place: put a new value, or use a timeline structure as the value. After a revert the
    order of iteration may be another one.
    """

    __slots__ = ("_newest", "_registry")

    def __init__(self, registry: SnapshotRegistry, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        self._newest: dict[K, V] = {}
        self._registry: Final = registry
        self.update(items)

    def __getitem__(self, key: K) -> V:
        return self._newest[key]

    def __contains__(self, key: object) -> bool:
        return key in self._newest

    def __iter__(self) -> Iterator[K]:
        return iter(self._newest)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def __repr__(self) -> str:
        return repr(self._newest)

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V, /) -> V: ...
    @overload
    def get(self, key: K, default: D, /) -> V | D: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        return self._newest.get(key, default)

    def keys(self) -> KeysView[K]:
        return self._newest.keys()

    def values(self) -> ValuesView[V]:
        return self._newest.values()

    def items(self) -> ItemsView[K, V]:
        return self._newest.items()

    def put(self, key: K, value: V) -> None:
        """Set a value; `self[key] = value` does the same."""
        newest = self._registry.newest
        if newest is not None:
            newest.changes.append((self, key, self._newest.get(key, _ABSENT)))
        self._newest[key] = value

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def put_all(self, items: Mapping[K, V]) -> None:
        """`put` each pair."""
        self.put_each(items, items.values())

    def put_each(self, keys: Collection[K], values: Iterable[V]) -> None:
        """`put` each key with the value at the same index."""
        self._keep_old(keys)
        self._newest.update(zip(keys, values, strict=False))

    def remove_each(self, keys: Collection[K]) -> None:
        """Delete these keys, which are there."""
        self._keep_old(keys)
        for key in keys:
            del self._newest[key]

    def _keep_old(self, keys: Collection[K]) -> None:
        """Report the change of these keys, in one for all."""
        newest = self._registry.newest
        if newest is not None:
            delta = newest.delta_of(self)
            new = [key for key in keys if key not in delta] if delta else keys
            delta.update(zip(new, map(self._newest.get, new, repeat(_ABSENT)), strict=True))

    def __delitem__(self, key: K) -> None:
        newest = self._registry.newest
        if newest is not None:
            newest.changes.append((self, key, self._newest[key]))
        del self._newest[key]

    def remove(self, key: K) -> V | None:
        """Delete a key, and return its value or None."""
        if key not in self:
            return None
        value = self[key]
        del self[key]
        return value

    def get_at(self, key: K, epoch: int) -> V | None:
        """Return the value of a key at a snapshot, or None. Costs a lookup in each snapshot from `epoch` on."""
        for delta in self._registry.deltas(self, epoch):
            if key in delta:
                value = delta[key]
                return None if value is _ABSENT else value
        return self.get(key)

    def getter_at(self, epoch: int) -> Callable[[K], V | None]:
        """
        Return a function that is `get_at` for one snapshot. It is valid until the next change of the dict.

        If nothing was overwritten since the snapshot, which is the usual case, it is the dict's own `get`.
        """
        deltas = list(self._registry.deltas(self, epoch))
        return partial(self._get_before, deltas) if deltas else self._newest.get

    def _get_before(self, deltas: list[dict[K, V]], key: K) -> V | None:
        for delta in deltas:
            if key in delta:
                value = delta[key]
                return None if value is _ABSENT else value
        return self.get(key)

    def contains_at(self, key: K, epoch: int) -> bool:
        """Whether a key existed at a snapshot."""
        for delta in self._registry.deltas(self, epoch):
            if key in delta:
                return delta[key] is not _ABSENT
        return key in self

    def items_at(self, epoch: int) -> Iterator[tuple[K, V]]:
        """
        Iterate over each pair at a snapshot once. The call copies references to all keys and values, 100 000 in a millisecond;
        during the iteration the dict may change and the snapshot may be dropped.
        """
        past: dict[K, V] = {}
        for delta in list(self._registry.deltas(self, epoch))[::-1]:
            past.update(delta)
        present = zip(list(self.keys()), list(self.values()), strict=True)
        return _with_past(present, past) if past else present

    def keys_at(self, epoch: int) -> list[K]:
        """The keys at a snapshot."""
        past: dict[K, V] = {}
        for delta in list(self._registry.deltas(self, epoch))[::-1]:
            past.update(delta)
        present = list(self.keys())
        if not past:
            return present
        keys = [key for key in present if key not in past]
        keys += [key for key, value in past.items() if value is not _ABSENT]
        return keys

    def _restore(self, delta: dict[K, V]) -> None:
        for key, value in delta.items():
            if value is _ABSENT:
                self._newest.pop(key, None)
            else:
                self._newest[key] = value

    def update(self, other: Any = (), /, **more: V) -> None:
        self.put_all(dict(other, **more))

    def popitem(self) -> tuple[K, V]:
        key = next(reversed(self._newest))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self._newest):
            del self[key]

    def __ior__(self, other: Any) -> "TimelineDict[K, V]":
        self.update(other)
        return self

    def copy(self) -> dict[K, V]:
        """A plain dict of the newest state."""
        return dict(self._newest)


class TimelineSet(Generic[K]):
    """A set that can be read, and reverted, as of a snapshot."""

    __slots__ = ("_elements",)

    def __init__(self, registry: SnapshotRegistry, elements: Iterable[K] = ()) -> None:
        self._elements: TimelineDict[K, None] = TimelineDict(registry)
        for element in elements:
            self.add(element)

    def __contains__(self, element: object) -> bool:
        return element in self._elements

    def __iter__(self) -> Iterator[K]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)

    def add(self, element: K) -> bool:
        """Add an element, and return whether it is new."""
        if element in self._elements:
            return False
        self._elements[element] = None
        return True

    def discard(self, element: K) -> bool:
        """Remove an element, and return whether it was in the set."""
        if element not in self._elements:
            return False
        del self._elements[element]
        return True

    def clear(self) -> None:
        self._elements.clear()

    def contains_at(self, element: K, epoch: int) -> bool:
        return self._elements.contains_at(element, epoch)

    def elements_at(self, epoch: int) -> Iterator[K]:
        return (element for element, _ in self._elements.items_at(epoch))


class TimelineValue(Generic[V]):
    """One value that can be read, and reverted, as of a snapshot."""

    __slots__ = ("_registry", "_value")

    def __init__(self, registry: SnapshotRegistry, value: V) -> None:
        self._registry = registry
        self._value = value

    def get(self) -> V:
        return self._value

    def set(self, value: V) -> None:
        newest = self._registry.newest
        if newest is not None:
            newest.changes.append((self, None, self._value))
        self._value = value

    def get_at(self, epoch: int) -> V:
        """Return the value at a snapshot."""
        for delta in self._registry.deltas(self, epoch):
            return delta[None]  # type: ignore[no-any-return]
        return self._value

    def _restore(self, delta: dict[Any, Any]) -> None:
        self._value = delta[None]


__all__ = ["SnapshotRegistry", "TimelineDict", "TimelineSet", "TimelineValue"]
