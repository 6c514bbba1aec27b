"""When a fault hits, without a broker."""

from typing import Any

from kohort.control.requests.faults import Fault, FaultSpec


def fault(other: Fault | None = None, **spec: Any) -> Fault:
    return Fault("fault-2", FaultSpec(error="NOT_COORDINATOR", **spec), lambda _id: None, lambda _id: other)


def hits(tried: Fault, calls: int) -> list[int]:
    """The numbers of the requests that are hit, of so many that match."""
    found = []
    for number in range(1, calls + 1):
        if tried.fires():
            tried.hit()
            found.append(number)
    return found


def test_a_fault_hits_once_unless_it_says_more() -> None:
    assert hits(fault(), 5) == [1]
    assert hits(fault(times=3), 5) == [1, 2, 3]
    assert hits(fault(always=True), 5) == [1, 2, 3, 4, 5]
    assert hits(Fault("f", FaultSpec(observe=True), lambda _id: None), 3) == [1, 2, 3]


def test_the_request_with_a_number_is_hit() -> None:
    assert hits(fault(on_call=3), 5) == [3]
    assert hits(fault(on_call=3, times=2), 5) == [3, 4]


def test_chances_come_from_a_seed() -> None:
    found = hits(fault(probability=0.3, seed=7), 1_000)
    assert 200 < len(found) < 400
    assert found == hits(fault(probability=0.3, seed=7), 1_000)
    assert found != hits(fault(probability=0.3, seed=8), 1_000)
    assert hits(fault(probability=0, seed=7), 100) == []
    assert hits(fault(probability=1, seed=7), 3) == [1, 2, 3]
    assert len(hits(fault(probability=0.5, seed=7, times=2), 100)) == 2


def test_a_fault_comes_after_another_one() -> None:
    first = fault(times=2)
    for after in ({"after": "fault-1"}, {"after_fault": "fault-1"}):
        second = fault(first, times=1, **after)
        first.hits = 0
        assert hits(second, 2) == []
        assert second.calls == 0
        hits(first, 1)
        assert hits(second, 1) == []
        hits(first, 1)
        assert hits(second, 2) == [1]


def test_a_fault_that_was_removed_hits_no_more() -> None:
    removed = fault(always=True)
    removed.is_removed = True
    assert hits(removed, 2) == []
    assert removed.is_spent


def test_a_view_tells_what_happened() -> None:
    seen = fault(times=2, scope="one")
    hits(seen, 1)
    view = seen.view()
    assert (view.id, view.scope, view.effect, view.calls, view.hits) == ("fault-2", "one", "error", 1, 1)
    assert not view.is_spent
