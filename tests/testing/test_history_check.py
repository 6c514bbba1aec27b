"""The comparison of a history: each kind of defect is found and named, and nothing else."""

from collections.abc import Callable
from dataclasses import fields

import pytest

from kohort_lab.history_check import Observed, judge
from kohort_lab.history_check.verdict import DEFECTS, Committed, Fetched, Written

COUNT = 10


def right() -> Observed:
    """Two producers write to two partitions, a member reads and commits, and an observer asks."""
    records = [
        Written(partition, offset, f"p{offset % 2}", 2 * offset + partition)
        for partition in range(2)
        for offset in range(COUNT)
    ]
    return Observed(
        acknowledged=list(records),
        topic=list(records),
        read=list(records),
        committed=[Committed(at_s=offset, partition=0, offset=offset) for offset in range(1, COUNT + 1)],
        fetched=[Fetched(offset - 0.5, offset + 0.5, 0, offset) for offset in range(1, COUNT + 1)],
    )


def swap(observed: Observed) -> None:
    """The third and the fifth record are of one producer and partition."""
    first, second = observed.topic[2], observed.topic[4]
    observed.topic[2] = second._replace(offset=first.offset)
    observed.topic[4] = first._replace(offset=second.offset)
    observed.acknowledged = []
    observed.read = list(observed.topic)


def repeat(observed: Observed) -> None:
    again = observed.topic[3]._replace(offset=COUNT)
    observed.topic.append(again)
    observed.read.append(again)


def replace(observed: Observed) -> None:
    """Another record is at the place of one that a member has read."""
    observed.topic[5] = observed.topic[5]._replace(producer="p9")
    observed.acknowledged.pop(5)


def put_beside(observed: Observed) -> None:
    observed.topic.append(observed.topic[-1]._replace(number=99))


def go_back(observed: Observed) -> None:
    """No member knows that its commit has succeeded."""
    observed.committed = []
    observed.fetched.append(Fetched(8, 8.1, 0, 6))


# fmt: off
DAMAGE: dict[str, tuple[Callable[[Observed], object], set[str]]] = {
    "nothing":                        (lambda _: None, set()),
    "an acknowledged record is gone": (lambda it: (it.topic.pop(3), it.read.pop(3)), {"lost"}),
    "it is at another offset":        (lambda it: it.acknowledged.__setitem__(3, it.topic[3]._replace(offset=4)), {"lost"}),
    "a record is there twice":        (repeat, {"duplicated"}),
    "two records change places":      (swap, {"disordered"}),
    "two records at one place":       (put_beside, {"lost", "unknown", "misread"}),
    "a record is never read":         (lambda it: it.read.pop(3), {"unread"}),
    "another record is read":         (replace, {"misread"}),
    "a record is not acknowledged":   (lambda it: it.acknowledged.pop(3), set()),
    "a record is read twice":         (lambda it: it.read.append(it.read[3]), set()),
    "an older offset is answered":    (lambda it: it.fetched.append(Fetched(8, 8.1, 0, 6)), {"went_back"}),
    "no offset is answered":          (lambda it: it.fetched.append(Fetched(8, 8.1, 0, -1)), {"went_back"}),
    "an answer goes back":            (go_back, {"went_back"}),
    "a commit is under way":          (lambda it: it.fetched.append(Fetched(7.9, 8.1, 0, 7)), set()),
    "another partition's offset":     (lambda it: it.fetched.append(Fetched(8, 8.1, 1, 0)), set()),
}
# fmt: on


@pytest.mark.parametrize("what", DAMAGE)
def test_each_defect_is_found(what: str) -> None:
    observed = right()
    change, found = DAMAGE[what]
    change(observed)
    verdict = judge(observed)
    assert {name for name in DEFECTS if getattr(verdict, name)} == found, verdict.examples
    assert verdict.is_right == (not found)
    assert bool(verdict.examples) == bool(found)


def test_the_verdict_names_its_defects() -> None:
    names = {each.name for each in fields(judge(right()))}
    assert set(DEFECTS) <= names
    assert str(judge(right())).startswith("20 records, 10 commits: 0 lost, ")
