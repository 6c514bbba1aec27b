"""Deadlines run once, in their millisecond, in order; moving and cancelling them is honoured."""

from collections.abc import Callable
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.wheel import Wheel

DELAYS = st.one_of(
    st.sampled_from([0, 1, 2, 255, 256, 257, 511, 512, 65_535, 65_536, 65_537, 300_000, 16_777_216, 604_800_000]),
    st.integers(0, 2_000),
    st.integers(0, 40_000_000),
)


def run_to_end(wheel: Wheel) -> None:
    while wheel.next_ms is not None:
        wheel.advance(wheel.next_ms)


@given(start=st.integers(0, 2_000_000_000_000), delays=st.lists(DELAYS, max_size=60))
def test_each_runs_once_at_its_deadline_in_order(start: int, delays: list[int]) -> None:
    wheel = Wheel(start)
    ran: list[tuple[int, int]] = []

    def note(deadline_ms: int) -> Callable[[], None]:
        return lambda: ran.append((deadline_ms, wheel.now_ms))

    for delay in delays:
        wheel.arm(start + delay, note(start + delay))
    run_to_end(wheel)
    assert all(deadline == now for deadline, now in ran)
    assert [deadline for deadline, _ in ran] == sorted(start + delay for delay in delays)


@given(data=st.data(), delays=st.lists(DELAYS, min_size=1, max_size=20))
def test_moved_and_cancelled_deadlines_are_honoured(data: st.DataObject, delays: list[int]) -> None:
    wheel = Wheel(1_000)
    ran: list[int] = []

    def note(index: int) -> Callable[[], None]:
        return lambda: ran.append(index)

    timers = [wheel.arm(1_000 + delay, note(index)) for index, delay in enumerate(delays)]
    expected: dict[int, int] = {index: 1_000 + delay for index, delay in enumerate(delays)}
    for index in range(len(delays)):
        match data.draw(st.sampled_from(["keep", "move", "cancel"])):
            case "move":
                deadline = 1_000 + data.draw(DELAYS)
                timers[index] = wheel.move(timers[index], deadline)
                expected[index] = deadline
            case "cancel":
                timers[index].cancel()
                del expected[index]
    run_to_end(wheel)
    assert sorted(ran) == sorted(expected)
    assert [expected[index] for index in ran] == sorted(expected.values())


def test_just_before_at_and_just_after() -> None:
    wheel = Wheel(0)
    ran: list[str] = []
    wheel.arm(1_000, lambda: ran.append("a"))
    wheel.advance(999)
    assert ran == []
    wheel.advance(1_000)
    assert ran == ["a"]
    wheel.advance(1_001)
    assert ran == ["a"]


def test_a_jump_over_many_deadlines_keeps_their_order() -> None:
    wheel = Wheel(0)
    ran: list[int] = []
    for deadline in (70_000, 5, 300, 299, 66_000):
        wheel.arm(deadline, lambda deadline=deadline: ran.append(deadline))  # type: ignore[misc]
    assert wheel.advance(1_000_000) == 5
    assert ran == [5, 299, 300, 66_000, 70_000]


def test_the_owner_is_told_when_something_comes_earlier() -> None:
    told: list[int] = []
    wheel = Wheel(0, told.append)
    wheel.arm(200, lambda: None)
    wheel.arm(210, lambda: None)
    wheel.arm(100, lambda: None)
    assert told == [200, 100]


def test_the_owner_is_not_told_of_a_time_that_it_knows() -> None:
    told: list[int] = []
    wheel = Wheel(0, told.append)
    wheel.arm(300, lambda: None)
    assert wheel.next_ms == 256, "the start of a wide bucket"
    wheel.advance(100)
    wheel.arm(256, lambda: None)
    assert told == [256]


def test_a_timer_stays_the_same_unless_its_bucket_is_too_late() -> None:
    wheel = Wheel(0)
    ran: list[str] = []
    timer = wheel.arm(300, lambda: ran.append("moved"))
    assert wheel.move(timer, 900) is timer
    assert wheel.move(timer, 256) is timer, "its bucket begins at 256"
    earlier = wheel.move(timer, 255)
    assert earlier is not timer
    assert (timer.is_armed, earlier.is_armed) == (False, True)
    wheel.advance(254)
    assert ran == []
    run_to_end(wheel)
    assert (ran, earlier.is_armed) == (["moved"], False)


def test_a_deadline_in_the_past_runs_at_the_next_advance() -> None:
    wheel = Wheel(500)
    ran: list[int] = []
    wheel.arm(1, lambda: ran.append(1))
    wheel.advance(500)
    assert ran == [1]


def test_a_turn_runs_what_is_deferred_meanwhile_and_survives_a_failure() -> None:
    woken: list[Callable[[], None]] = []
    turn = ReadyQueue(woken.append)
    ran: list[str] = []

    def fails() -> None:
        turn.defer(lambda: ran.append("third"))
        raise RuntimeError("no")

    turn.defer(lambda: ran.append("first"))
    turn.defer(fails)
    turn.defer(lambda: ran.append("second"))
    assert len(woken) == 1, "one turn is one call of the loop"
    woken[0]()
    assert ran == ["first", "second", "third"]


def test_cancelled_timers_are_not_kept_until_their_deadlines() -> None:
    """A client chooses the timeout of a request, up to 24 days; the request is usually answered at once."""
    wheel = Wheel(0)
    ran: list[int] = []
    kept = [wheel.arm(day * 86_400_000, partial(ran.append, day)) for day in range(1, 21) for _ in range(50)]
    for number in range(100_000):
        wheel.arm((1 << 31) - 1 - number % 7, lambda: ran.append(0)).cancel()
    held = sum(map(len, wheel._buckets.values()))
    assert held < 2 * len(kept) + 1_000
    # The others run, those too that were moved within a bucket that was swept.
    for timer in kept:
        wheel.move(timer, timer.deadline_ms + 1)
    wheel.advance(1 << 31)
    assert ran == [day for day in range(1, 21) for _ in range(50)]
    assert not wheel._sweep_at
