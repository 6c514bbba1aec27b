"""Objects whose attributes can be read, and reverted, as of an earlier log offset."""

from typing import Any, Final

from kohort.machine.timeline import SnapshotRegistry


class TimelineFields:
    """
    A base of Kohort's own objects with several timeline values. Classes outside of the compiled build cannot inherit from it.

    Reads of the newest state are reads of attributes. Every change is a call of `change`, which notes the old values in the
    newest snapshot of the shard, as the structures of `kohort.machine.timeline` do. Values must not be changed in place.
    """

    __slots__ = ("_registry",)

    def __init__(self, registry: SnapshotRegistry) -> None:
        self._registry: Final = registry

    def change(self, **values: Any) -> None:
        """Set attributes."""
        newest = self._registry.newest
        for name, value in values.items():
            if newest is not None:
                newest.changes.append((self, name, getattr(self, name)))
            setattr(self, name, value)

    def value_at(self, name: str, epoch: int) -> Any:
        """
        Return the value of an attribute at a snapshot.

        Raises:
            KeyError: there is no snapshot at `epoch`, but a later one.
        """
        for delta in self._registry.deltas(self, epoch):
            if name in delta:
                return delta[name]
        return getattr(self, name)

    def _restore(self, delta: dict[Any, Any]) -> None:
        for name, value in delta.items():
            setattr(self, name, value)
