"""The steps of long works share the event loop with requests: these go first, and a work is never starved."""

from collections.abc import Callable
from functools import partial

import pytest

from kohort.runtime.ready_queue import ReadyQueue
from kohort.server.turns import IDLE_SECONDS, OTHERS_TIMES, TURN_SECONDS, BackgroundSteps

STEP_SECONDS = 0.001


class Loop:
    """An event loop. Its time goes by in steps, and in the requests of each turn."""

    def __init__(self) -> None:
        self.time = 0.0
        self.requests_seconds = 0.0
        self.turns = 0
        self.notes: list[tuple[str, int]] = []
        """The steps, and how many turns there were before each of them."""
        self._due: list[Callable[[], None]] = []
        self.steps = BackgroundSteps(self._due.append, ReadyQueue(self._due.append).defer, lambda: self.time)

    def run(self, turns: int = 1_000) -> None:
        for _ in range(turns):
            due = self._due[:]
            self._due[:] = []
            self.turns += 1
            self.time += self.requests_seconds
            for each in due:
                each()

    def step(self, name: str, more: int = 0) -> None:
        """A step of a work, which goes on with more of them."""
        self.notes.append((name, self.turns))
        self.time += STEP_SECONDS
        if more:
            self.steps.add(partial(self.step, name, more - 1))

    @property
    def names(self) -> str:
        return "".join(name for name, _ in self.notes)

    @property
    def gaps(self) -> list[int]:
        """How many turns there are between two steps."""
        return [after - before for (_, before), (_, after) in zip(self.notes, self.notes[1:], strict=False)]


def test_an_idle_loop_takes_a_step_as_soon_as_it_has_looked_for_input() -> None:
    loop = Loop()
    loop.requests_seconds = IDLE_SECONDS / 4
    loop.steps.add(partial(loop.step, "a", 4))
    loop.run()
    assert loop.gaps == [2, 2, 2, 2]


def test_requests_get_three_quarters_of_a_busy_loop_and_a_work_the_rest() -> None:
    loop = Loop()
    loop.requests_seconds = STEP_SECONDS / 2
    loop.steps.add(partial(loop.step, "a", 4))
    loop.run()
    turns = OTHERS_TIMES * STEP_SECONDS / loop.requests_seconds
    assert set(loop.gaps) == {turns + 1}, "a step is at the end of the turn in which it is found to be time for it"


def test_a_turn_without_requests_ends_the_wait() -> None:
    loop = Loop()
    loop.requests_seconds = STEP_SECONDS / 2
    loop.steps.add(partial(loop.step, "a", 1))
    loop.run(4)
    assert loop.names == "a", "requests have not had three times as long yet"
    loop.requests_seconds = 0.0
    loop.run(3)
    assert loop.names == "aa"


def test_works_take_turns_and_a_pause_of_all_of_them_counts_for_the_next() -> None:
    loop = Loop()
    loop.requests_seconds = STEP_SECONDS / 2
    loop.steps.add(partial(loop.step, "a", 2))
    loop.steps.add(partial(loop.step, "b", 1))
    loop.run()
    assert loop.names == "ababa"
    loop.notes.clear()
    began = loop.turns
    loop.steps.add(partial(loop.step, "c"))
    loop.run(3)
    assert loop.notes == [("c", began + 2)]


def test_a_step_that_fails_or_is_cancelled_does_not_stop_the_others() -> None:
    loop = Loop()

    def fail() -> None:
        raise RuntimeError

    loop.steps.add(fail)
    first, second, third = (partial(loop.step, name) for name in "abc")
    loop.steps.add(first)
    loop.steps.add(second)
    loop.steps.cancel(first)
    loop.run()
    assert loop.names == "b"
    loop.steps.cancel(second)
    loop.steps.add(third)
    loop.steps.cancel(third)
    loop.run()
    loop.steps.add(first)
    loop.run()
    assert loop.names == "ba"


def test_a_step_may_be_cancelled_in_the_turn_that_would_take_it(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    step = partial(loop.step, "a")
    loop.steps.add(step)
    loop.run(1)
    loop.steps.cancel(step)
    loop.run()
    loop.steps.add(partial(loop.step, "b"))
    loop.run()
    loop.steps.add(lambda: loop.steps.cancel(step))
    loop.steps.add(step)
    loop.run()
    assert loop.names == "b"
    assert not caplog.records


def test_short_steps_of_several_works_share_a_turn() -> None:
    loop = Loop()
    taken: list[tuple[int, int]] = []

    def step(name: int) -> None:
        taken.append((name, loop.turns))
        loop.time += TURN_SECONDS / 2
        if name == 0:
            loop.steps.add(partial(step, 3))

    for name in range(3):
        loop.steps.add(partial(step, name))
    loop.run()
    first = taken[0][1]
    assert taken == [(0, first), (1, first), (2, first + 2), (3, first + 2)]
