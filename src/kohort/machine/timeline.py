"""
State with a past: structures that can be read, and set back, as of an earlier log offset.

Epochs are log offsets. A snapshot at epoch E sees everything that was done before it was taken, and nothing after. The newest
state is a plain `dict` (or set, or attribute), so reading it costs what that costs; a change first notes, in the newest
snapshot, what that snapshot saw. Taking a snapshot costs the same at any size, dropping the oldest ones too, and what old
snapshots hold is bounded by what has changed since.

Source: Kafka org.apache.kafka.timeline (SnapshotRegistry, TimelineHashMap, TimelineHashSet, TimelineObject).
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from typing import Any, Final, Generic, Protocol, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

_ABSENT: Final[Any] = object()
"""What a delta holds for a key that did not exist."""


class _Revertable(Protocol):
    """A structure that can put back what a delta remembers."""

    def _restore(self, delta: dict[Any, Any], /) -> None: ...


class _Snapshot:
    """One epoch, and per structure what has been overwritten since it was taken and before the next one was."""

    __slots__ = ("deltas", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.deltas: dict[int, tuple[_Revertable, dict[Any, Any]]] = {}
        """By identity of the structure, which each entry keeps alive."""

    def delta_of(self, structure: _Revertable) -> dict[Any, Any]:
        entry = self.deltas.get(id(structure))
        if entry is None:
            entry = self.deltas[id(structure)] = (structure, {})
        return entry[1]

    def absorb(self, later: "_Snapshot") -> None:
        """Take over what a later snapshot remembers; what is remembered here already is older, and stays."""
        for structure, delta in later.deltas.values():
            mine = self.delta_of(structure)
            for key, value in delta.items():
                mine.setdefault(key, value)


class SnapshotRegistry:
    """
    The snapshots of one shard, oldest first. Structures are made with it and report their changes to its newest snapshot.

    Not safe for threads: whoever runs the shard's operations one at a time also takes its snapshots.
    """

    __slots__ = ("_snapshots", "newest")

    def __init__(self) -> None:
        self._snapshots: list[_Snapshot] = []
        self.newest: _Snapshot | None = None
        """Where changes are noted; None as long as nothing can be reverted."""

    @property
    def epochs(self) -> tuple[int, ...]:
        return tuple(snapshot.epoch for snapshot in self._snapshots)

    def create(self, epoch: int) -> None:
        """
        Remember the present state as `epoch`; the newest epoch again changes nothing.

        Raises:
            ValueError: there is a newer snapshot.
        """
        newest = self.newest
        if newest is not None:
            if epoch == newest.epoch:
                return
            if epoch < newest.epoch:
                raise ValueError(
                    f"cannot take a snapshot at {epoch}: the newest is at {newest.epoch} of {self._listing()}"
                )
        self.newest = _Snapshot(epoch)
        self._snapshots.append(self.newest)

    def delete(self, epoch: int) -> None:
        """
        Forget one snapshot. What it alone remembers passes to the one before it.

        Raises:
            KeyError: there is no snapshot at `epoch`.
        """
        index = self._index(epoch)
        if index > 0:
            self._snapshots[index - 1].absorb(self._snapshots[index])
        del self._snapshots[index]
        self.newest = self._snapshots[-1] if self._snapshots else None

    def delete_up_to(self, epoch: int) -> None:
        """Forget every snapshot below `epoch`."""
        count = 0
        for snapshot in self._snapshots:
            if snapshot.epoch >= epoch:
                break
            count += 1
        del self._snapshots[:count]
        if not self._snapshots:
            self.newest = None

    def revert_to(self, epoch: int) -> None:
        """
        Set every structure back to what it was at `epoch`; that snapshot stays, later ones are gone.

        Raises:
            KeyError: there is no snapshot at `epoch`.
        """
        index = self._index(epoch)
        snapshot = self._snapshots[index]
        for later in self._snapshots[index + 1 :]:
            snapshot.absorb(later)
        del self._snapshots[index + 1 :]
        fresh = self.newest = self._snapshots[index] = _Snapshot(epoch)
        for structure, delta in snapshot.deltas.values():
            structure._restore(delta)
        # Restoring is no change: the state now is the state at `epoch`.
        fresh.deltas.clear()

    def deltas(self, structure: _Revertable, epoch: int) -> Iterator[dict[Any, Any]]:
        """
        What was overwritten in one structure since `epoch`, snapshot by snapshot, oldest first.

        Raises:
            KeyError: there is no snapshot at `epoch`.
        """
        for snapshot in self._snapshots[self._index(epoch) :]:
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


class TimelineDict(dict[K, V], Generic[K, V]):
    """
    A dict whose past can be read and restored.

    Reading is the dict's own. Values must not be changed in place (give each version a value of its own, or make the value a
    timeline structure). After a revert the order of iteration may differ from before.
    """

    __slots__ = ("_delta", "_registry", "_seen")

    def __init__(self, registry: SnapshotRegistry, items: Mapping[K, V] | Iterable[tuple[K, V]] = ()) -> None:
        super().__init__()
        self._registry = registry
        self._seen: _Snapshot | None = None
        self._delta: dict[K, V] = {}
        """What the snapshot `_seen` remembers of this dict."""
        self.update(items)

    def put(self, key: K, value: V) -> None:
        """What `self[key] = value` does, too."""
        newest = self._registry.newest
        if newest is not None:
            if newest is not self._seen:
                self._seen, self._delta = newest, newest.delta_of(self)
            if key not in self._delta:
                self._delta[key] = self.get(key, _ABSENT)
        dict.__setitem__(self, key, value)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def put_all(self, items: Mapping[K, V]) -> None:
        """`put` of many."""
        self.put_each(items, items.values())

    def put_each(self, keys: Collection[K], values: Iterable[V]) -> None:
        """`put` of each key with the value at its place."""
        newest = self._registry.newest
        if newest is not None:
            if newest is not self._seen:
                self._seen, self._delta = newest, newest.delta_of(self)
            delta = self._delta
            new = [key for key in keys if key not in delta] if delta else keys
            delta.update(zip(new, map(self.get, new, repeat(_ABSENT)), strict=True))
        dict.update(self, zip(keys, values, strict=False))

    def __delitem__(self, key: K) -> None:
        newest = self._registry.newest
        if newest is not None:
            if newest is not self._seen:
                self._seen, self._delta = newest, newest.delta_of(self)
            if key not in self._delta:
                self._delta[key] = self[key]
        dict.__delitem__(self, key)

    def remove(self, key: K) -> V | None:
        """Take a key away; its value, or None when there was none."""
        if key not in self:
            return None
        value = self[key]
        del self[key]
        return value

    def get_at(self, key: K, epoch: int) -> V | None:
        """The value of a key at a snapshot, or None. Costs a look into each snapshot from `epoch` on."""
        for delta in self._registry.deltas(self, epoch):
            if key in delta:
                value = delta[key]
                return None if value is _ABSENT else value
        return self.get(key)

    def getter_at(self, epoch: int) -> Callable[[K], V | None]:
        """
        `get_at` for many keys of one snapshot; to be used before anything changes.

        Where nothing was overwritten since, which is the rule, this is the dict's own `get`.
        """
        deltas = list(self._registry.deltas(self, epoch))
        return partial(self._get_before, deltas) if deltas else self.get

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
        """Every pair at a snapshot, each once, unmoved by changes made meanwhile."""
        past: dict[K, V] = {}
        for delta in list(self._registry.deltas(self, epoch))[::-1]:
            past.update(delta)
        present = [pair for pair in self.items() if pair[0] not in past] if past else list(self.items())
        yield from present
        for key, value in past.items():
            if value is not _ABSENT:
                yield key, value

    def size_at(self, epoch: int) -> int:
        """How many keys there were at a snapshot."""
        past: dict[K, V] = {}
        for delta in list(self._registry.deltas(self, epoch))[::-1]:
            past.update(delta)
        existed = sum(value is not _ABSENT for value in past.values())
        return len(self) - sum(key in self for key in past) + existed

    def _restore(self, delta: dict[K, V]) -> None:
        for key, value in delta.items():
            if value is _ABSENT:
                dict.pop(self, key, None)
            else:
                dict.__setitem__(self, key, value)
        self._seen = None

    # The rest of a dict's writing methods, each by way of the two above.

    def update(self, other: Any = (), /, **more: V) -> None:
        self.put_all(dict(other, **more))

    def setdefault(self, key: K, default: V = None) -> V:  # type: ignore[assignment]
        if key not in self:
            self[key] = default
        return self[key]

    @overload
    def pop(self, key: K, /) -> V: ...
    @overload
    def pop(self, key: K, default: V, /) -> V: ...
    @overload
    def pop(self, key: K, default: D, /) -> V | D: ...
    def pop(self, key: K, default: Any = _ABSENT, /) -> Any:
        if key not in self:
            if default is _ABSENT:
                raise KeyError(key)
            return default
        return self.remove(key)

    def popitem(self) -> tuple[K, V]:
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def __ior__(self, other: Any) -> "TimelineDict[K, V]":  # type: ignore[override,misc]
        self.update(other)
        return self

    def copy(self) -> dict[K, V]:
        """A plain dict of the present."""
        return dict(self)


class TimelineSet(Generic[K]):
    """A set whose past can be read and restored: a timeline dict of its elements."""

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
        """Whether it is new."""
        if element in self._elements:
            return False
        self._elements[element] = None
        return True

    def discard(self, element: K) -> bool:
        """Whether it was there."""
        if element not in self._elements:
            return False
        del self._elements[element]
        return True

    def contains_at(self, element: K, epoch: int) -> bool:
        return self._elements.contains_at(element, epoch)

    def elements_at(self, epoch: int) -> Iterator[K]:
        return (element for element, _ in self._elements.items_at(epoch))


class TimelineValue(Generic[V]):
    """One value whose past can be read and restored."""

    __slots__ = ("_registry", "_value")

    def __init__(self, registry: SnapshotRegistry, value: V) -> None:
        self._registry = registry
        self._value = value

    def get(self) -> V:
        return self._value

    def set(self, value: V) -> None:
        newest = self._registry.newest
        if newest is not None:
            newest.delta_of(self).setdefault(None, self._value)
        self._value = value

    def get_at(self, epoch: int) -> V:
        """The value at a snapshot."""
        for delta in self._registry.deltas(self, epoch):
            return delta[None]  # type: ignore[no-any-return]
        return self._value

    def _restore(self, delta: dict[Any, Any]) -> None:
        self._value = delta[None]


__all__ = ["SnapshotRegistry", "TimelineDict", "TimelineSet", "TimelineValue"]
