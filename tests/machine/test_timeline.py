"""Timeline structures against a model that copies everything at every snapshot."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kohort.group.classic.group import ClassicGroup
from kohort.machine.timeline import SnapshotRegistry, TimelineDict, TimelineSet, TimelineValue
from kohort.machine.timeline_fields import TimelineFields

KEYS = st.sampled_from("abcde")


def items_at(table: TimelineDict[str, int], epoch: int) -> dict[str, int]:
    pairs = list(table.items_at(epoch))
    assert [key for key, _ in pairs] == table.keys_at(epoch)
    return dict(pairs)


FIELDS = ("generation", "state_timestamp_ms")


class AgainstCopies(RuleBasedStateMachine):
    """
    Any mix of changes, snapshots, deletions, reverts and operations: the present and every past equal full copies, also within
    an operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.registry = SnapshotRegistry()
        self.table: TimelineDict[str, int] = TimelineDict(self.registry)
        self.other: TimelineDict[str, int] = TimelineDict(self.registry)
        self.elements: TimelineSet[str] = TimelineSet(self.registry)
        self.cell: TimelineValue[int] = TimelineValue(self.registry, 0)
        # A class of tests cannot inherit from a compiled one.
        self.fields: TimelineFields = ClassicGroup("fields", self.registry)
        self.copies: dict[int, Any] = {}
        self.epoch = 0
        self.mark: Any = None
        """The state before the operation; None between operations."""

    def present(self) -> Any:
        fields = tuple(getattr(self.fields, name) for name in FIELDS)
        return dict(self.table), dict(self.other), set(self.elements), self.cell.get(), fields

    def at(self, epoch: int) -> Any:
        return (
            items_at(self.table, epoch),
            items_at(self.other, epoch),
            set(self.elements.elements_at(epoch)),
            self.cell.get_at(epoch),
            tuple(self.fields.value_at(name, epoch) for name in FIELDS),
        )

    @rule(key=KEYS, value=st.integers(0, 9))
    def put(self, key: str, value: int) -> None:
        self.table.put(key, value)

    @rule(key=KEYS)
    def remove(self, key: str) -> None:
        before = self.table.get(key)
        assert self.table.remove(key) == before
        assert key not in self.table

    @rule(key=KEYS, value=st.integers(0, 9))
    def put_other(self, key: str, value: int) -> None:
        self.other[key] = value

    @rule(items=st.dictionaries(KEYS, st.integers(0, 9)))
    def put_all(self, items: dict[str, int]) -> None:
        self.table.put_all(items)
        assert items.items() <= self.table.items()

    @rule(keys=st.sets(KEYS))
    def remove_each(self, keys: set[str]) -> None:
        keys &= self.table.keys()
        self.table.remove_each(keys)
        assert keys.isdisjoint(self.table)

    @rule()
    def clear_other(self) -> None:
        self.other.clear()

    @rule(key=KEYS)
    def toggle(self, key: str) -> None:
        if not self.elements.add(key):
            self.elements.discard(key)

    @rule(value=st.integers(0, 9))
    def set_cell(self, value: int) -> None:
        self.cell.set(value)

    @rule(values=st.dictionaries(st.sampled_from(FIELDS), st.integers(0, 9)))
    def change_fields(self, values: dict[str, int]) -> None:
        self.fields.change(**values)

    @rule()
    def clear_elements(self) -> None:
        self.elements.clear()

    @rule(step=st.integers(0, 3))
    def snapshot(self, step: int) -> None:
        self.epoch += step
        self.registry.create(self.epoch)
        if step or self.epoch not in self.copies:
            self.copies[self.epoch] = self.mark or self.present()

    @precondition(lambda self: self.mark is None)
    @rule()
    def begin(self) -> None:
        self.registry.begin()
        self.mark = self.present()

    @rule()
    def undo(self) -> None:
        self.registry.undo()
        assert self.mark is None or self.present() == self.mark
        self.mark = None

    @rule()
    def end(self) -> None:
        self.registry.end()
        self.mark = None

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def revert(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.copies)))
        self.registry.revert_to(epoch)
        assert self.present() == self.copies[epoch]
        self.copies = {it: copy for it, copy in self.copies.items() if it <= epoch}
        self.epoch = epoch
        self.mark = None

    @precondition(lambda self: self.copies)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        epoch = data.draw(st.sampled_from(sorted(self.copies)))
        self.registry.delete(epoch)
        del self.copies[epoch]

    @rule(data=st.data())
    def delete_up_to(self, data: st.DataObject) -> None:
        epoch = data.draw(st.integers(0, self.epoch + 1))
        self.registry.delete_up_to(epoch)
        self.copies = {it: copy for it, copy in self.copies.items() if it >= epoch}

    @invariant()
    def the_snapshots_are_there(self) -> None:
        assert self.registry.epochs == tuple(sorted(self.copies))

    def teardown(self) -> None:
        self.every_past_is_what_it_was()

    @rule()
    def every_past_is_what_it_was(self) -> None:
        """A rule and no invariant: a look at the past changes how later snapshots keep it."""
        assert self.at(self.epoch + 1) == (self.mark or self.present()), (
            "without a later snapshot the state is read as it is"
        )
        for epoch, copy in self.copies.items():
            assert self.at(epoch) == copy
            table = copy[0]
            get = self.table.getter_at(epoch)
            for key in "abcde":
                assert self.table.get_at(key, epoch) == table.get(key)
                assert get(key) == table.get(key)
                assert self.table.contains_at(key, epoch) == (key in table)
                assert self.elements.contains_at(key, epoch) == (key in copy[2])


AgainstCopies.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAgainstCopies = AgainstCopies.TestCase


def test_a_revert_puts_back_the_same_instances() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[str, list[int]] = TimelineDict(registry)
    value = [1]
    table.put("a", value)
    registry.create(0)
    table.put("a", [2])
    registry.revert_to(0)
    assert table["a"] is value


def test_every_writing_method_of_a_dict_is_remembered() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[str, int] = TimelineDict(registry, {"a": 1, "b": 2})
    registry.create(0)
    table |= {"c": 3}
    table.update(d=4)
    table.setdefault("e", 5)
    assert table.pop("a") == 1
    assert table.pop("zz", 9) == 9
    table.popitem()
    del table["b"]
    with pytest.raises(KeyError):
        table.pop("b")
    with pytest.raises(KeyError):
        del table["b"]
    registry.revert_to(0)
    assert table == {"a": 1, "b": 2}


def test_it_is_equal_to_what_a_dict_is_equal_to() -> None:
    """Which a compiled class that defines only one of `__eq__` and `__hash__` would not be."""
    first: TimelineDict[str, int] = TimelineDict(SnapshotRegistry(), {"a": 1})
    second: TimelineDict[str, int] = TimelineDict(SnapshotRegistry(), {"a": 1})
    assert first == second
    assert first == {"a": 1}
    second.put("b", 2)
    assert first != second
    with pytest.raises(TypeError, match="unhashable"):
        hash(first)


def test_an_iteration_of_the_past_is_not_moved_by_changes() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[int, int] = TimelineDict(registry, {n: n for n in range(100)})
    registry.create(5)
    seen = []
    for key, value in table.items_at(5):
        seen.append((key, value))
        table.put(key + 1000, 0)
        table.remove((key + 7) % 100)
    assert sorted(seen) == [(n, n) for n in range(100)]


def test_an_iteration_of_the_past_outlives_its_snapshot() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[str, int] = TimelineDict(registry, {"a": 1, "b": 1})
    registry.create(5)
    table.put("a", 2)
    table.put("c", 2)
    pairs = table.items_at(5)
    registry.create(6)
    registry.delete_up_to(6)
    table.put("b", 3)
    assert dict(pairs) == {"a": 1, "b": 1}
    with pytest.raises(KeyError):
        table.items_at(5)


def test_what_a_dropped_snapshot_has_seen_passes_to_the_one_before() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[str, int] = TimelineDict(registry, {"a": 1})
    registry.create(1)
    registry.create(2)
    table.put("a", 2)
    table.put("a", 3)
    registry.delete(2)
    table.put("a", 4)
    assert table.get_at("a", 1) == 1
    registry.revert_to(1)
    assert table == {"a": 1}


def test_an_operation_that_looks_at_the_past_is_undone() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[str, int] = TimelineDict(registry, {"a": 1})
    registry.create(1)
    registry.begin()
    table.put("a", 2)
    assert table.get_at("a", 1) == 1
    registry.undo()
    assert table == {"a": 1}


def test_a_set_knows_its_elements() -> None:
    registry = SnapshotRegistry()
    elements: TimelineSet[str] = TimelineSet(registry, "ab")
    registry.create(1)
    assert elements.discard("a")
    assert not elements.discard("a")
    assert not elements.add("b")
    assert ("a" in elements, "b" in elements, len(elements)) == (False, True, 1)
    assert (elements.contains_at("a", 1), elements.contains_at("c", 1)) == (True, False)
    registry.revert_to(1)
    assert sorted(elements) == ["a", "b"]


def test_refusals_name_the_epochs() -> None:
    registry = SnapshotRegistry()
    registry.create(3)
    registry.create(7)
    with pytest.raises(ValueError, match=r"cannot take a snapshot at 5.*3, 7"):
        registry.create(5)
    with pytest.raises(KeyError, match=r"no snapshot at epoch 4; there are 3, 7"):
        registry.revert_to(4)
    with pytest.raises(KeyError, match="no snapshot"):
        registry.delete(9)


def test_old_snapshots_hold_only_what_changed() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[int, int] = TimelineDict(registry, {n: n for n in range(10_000)})
    registry.create(1)
    table.put(1, 0)
    table.put(1, 2)
    held = [len(delta) for delta in registry.deltas(table, 1)]
    assert held == [1]
    registry.delete_up_to(2)
    assert registry.newest is None


def test_a_key_that_changes_again_and_again_has_one_old_value() -> None:
    """The snapshot stays as long as the log hangs, and requests without records change what is not in the log."""
    registry = SnapshotRegistry()
    table: TimelineDict[int, Value] = TimelineDict(registry, {1: Value()})
    registry.create(1)
    seen: weakref.WeakSet[Value] = weakref.WeakSet()
    for _ in range(50_000):
        registry.begin()
        value = Value()
        seen.add(value)
        table.put(1, value)
        registry.end()
    assert len(seen) < 5_000
    registry.revert_to(1)
    assert table[1] not in seen


# -- dropped snapshots hold nothing --------------------------------------------------------------------------------


class Value:
    """Something that can be watched."""


Drop = Callable[[SnapshotRegistry, int], None]


def drop_below(registry: SnapshotRegistry, epoch: int) -> None:
    """What the high watermark does."""
    registry.delete_up_to(epoch)


def drop_one_by_one(registry: SnapshotRegistry, epoch: int) -> None:
    for each in registry.epochs[-2::-1]:
        registry.delete(each)


def revert_and_drop(registry: SnapshotRegistry, epoch: int) -> None:
    """A failed append, and the high watermark."""
    registry.revert_to(epoch)
    registry.delete_up_to(epoch)


@pytest.mark.parametrize("drop", [drop_below, drop_one_by_one, revert_and_drop])
def test_values_of_dropped_snapshots_are_freed(drop: Drop) -> None:
    """A dict that was changed once, and a dict in each of many epochs that is changed in the next one, and then dropped."""
    registry = SnapshotRegistry()
    lasting: TimelineDict[str, Value] = TimelineDict(registry)
    table: TimelineDict[int, TimelineDict[str, Value]] = TimelineDict(registry)
    values: weakref.WeakSet[Value] = weakref.WeakSet()

    def put_new(into: TimelineDict[str, Value]) -> None:
        value = Value()
        values.add(value)
        into.put("a", value)

    registry.create(1)
    registry.create(2)
    put_new(lasting)
    for epoch in range(3, 500):
        brief: TimelineDict[str, Value] = TimelineDict(registry)
        put_new(brief)
        table.put(epoch, brief)
        previous = table.remove(epoch - 1)
        if previous is not None:
            put_new(previous)
        registry.create(epoch)
        drop(registry, epoch)
        del brief, previous
    gc.collect()
    assert len(registry.epochs) == 1
    assert len(values) <= 3
    assert "a" in lasting


@pytest.mark.parametrize("drop", [drop_below, drop_one_by_one])
def test_a_structure_does_not_hold_what_was_overwritten_before_the_oldest_snapshot(drop: Drop) -> None:
    registry = SnapshotRegistry()
    tables: list[TimelineDict[str, Value]] = [TimelineDict(registry, {"a": Value()}) for _ in range(10)]
    cell: TimelineValue[Value] = TimelineValue(registry, Value())
    elements: TimelineSet[Value] = TimelineSet(registry, [Value()])
    overwritten = weakref.WeakSet([*(table["a"] for table in tables), cell.get(), *elements])
    registry.create(1)
    for table in tables:
        table.put("a", Value())
    cell.set(Value())
    for element in list(elements):
        elements.discard(element)
    del element
    registry.create(2)
    gc.collect()
    assert len(overwritten) == 12, "the first snapshot sees them"
    drop(registry, 2)
    gc.collect()
    assert len(overwritten) == 0


def test_a_revert_frees_what_was_put_since() -> None:
    registry = SnapshotRegistry()
    table: TimelineDict[str, Value] = TimelineDict(registry, {"a": Value()})
    values = weakref.WeakSet([table["a"]])
    registry.create(1)
    for epoch in range(2, 50):
        table.put("a", Value())
        values.add(table["a"])
        registry.create(epoch)
    registry.revert_to(1)
    gc.collect()
    assert set(values) == {table["a"]}
