"""Requests that wait for keys: each ends once, and none misses what it waits for."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.runtime.purgatory import Delayed, Purgatory, PurgatoryMetrics
from kohort.testing import VirtualNode


class Wish(Delayed):
    """Waits until it `may_end`; notes what happens to it."""

    def __init__(self, delay_ms: int = 100) -> None:
        super().__init__(delay_ms)
        self.may_end = False
        self.asked = 0
        self.heard: list[str] = []
        self.keys: list[Hashable | None] = []

    def try_complete(self, key: Hashable | None = None) -> bool:
        self.keys.append(key)
        self.asked += 1
        return self.may_end and self.force_complete()

    def on_complete(self) -> None:
        self.heard.append("complete")

    def on_expiration(self) -> None:
        self.heard.append("expired")


@pytest.fixture
def node() -> VirtualNode:
    return VirtualNode()


@pytest.fixture
def purgatory(node: VirtualNode) -> Purgatory[str]:
    return Purgatory(node.call_later)


def test_an_operation_is_told_the_key_that_has_changed(purgatory: Purgatory[str]) -> None:
    wish = Wish()
    purgatory.watch(wish, ["a", "b"])
    purgatory.check_and_complete("b")
    purgatory.check_and_complete("a")
    assert wish.keys == ["b", "a"]


def test_each_key_ends_who_can_end(purgatory: Purgatory[str]) -> None:
    one, two = Wish(), Wish()
    purgatory.watch(one, ["a"])
    purgatory.watch(two, ["a", "b"])
    assert purgatory.check_and_complete("a") == 0
    two.may_end = True
    assert purgatory.check_and_complete("nothing") == 0
    assert purgatory.check_and_complete("b") == 1
    assert (one.heard, two.heard) == ([], ["complete"])
    one.may_end = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.watched == 0


@pytest.mark.parametrize(
    ("waited_ms", "heard"), [(99, []), (100, ["complete", "expired"]), (101, ["complete", "expired"])]
)
def test_time_ends_it_once(node: VirtualNode, purgatory: Purgatory[str], waited_ms: int, heard: list[str]) -> None:
    wish = Wish()
    purgatory.watch(wish, ["a", "b"])
    node.advance(waited_ms)
    assert wish.heard == heard
    wish.may_end = True
    assert purgatory.check_and_complete("a") == (0 if heard else 1)
    node.advance(1000)
    assert wish.heard == (heard or ["complete"])


def test_those_that_ended_are_swept(node: VirtualNode) -> None:
    purgatory: Purgatory[str] = Purgatory(node.call_later, purge_interval=3)
    wishes = [Wish(), Wish(), Wish()]
    for wish, keys in zip(wishes, ("a", "ab", "abc"), strict=True):
        purgatory.watch(wish, keys)
    assert purgatory.metrics() == PurgatoryMetrics(size=6, delayed_operations=3)
    for wish, watched in zip(reversed(wishes), (3, 1, 0), strict=True):
        wish.force_complete()
        purgatory.purge()
        assert purgatory.watched == watched
    for _ in range(3):
        wish = Wish()
        purgatory.watch(wish, "abc")
        wish.force_complete()
    assert purgatory.watched == 9
    purgatory.watch(Wish(), "a")
    assert purgatory.watched == 1, "the fourth since the last sweep starts another"


def test_a_key_that_is_gone_cancels(node: VirtualNode, purgatory: Purgatory[str]) -> None:
    wishes = [Wish(), Wish()]
    for wish in wishes:
        purgatory.watch(wish, ["a", "b"])
    wishes[0].force_complete()
    assert purgatory.cancel("a") == [wishes[1]]
    node.advance(1000)
    assert purgatory.check_and_complete("b") == 0
    assert [wish.heard for wish in wishes] == [["complete"], []]


def test_an_end_may_let_others_go_on(purgatory: Purgatory[str]) -> None:
    first, second = Wish(), Wish()

    def pass_on() -> None:
        first.heard.append("complete")
        second.may_end = True
        assert purgatory.check_and_complete("a") == 1

    first.on_complete = pass_on  # type: ignore[method-assign]
    for wish in (first, second):
        purgatory.watch(wish, ["a"])
    first.may_end = True
    assert purgatory.check_and_complete("a") == 1
    assert (first.heard, second.heard, purgatory.watched) == (["complete"], ["complete"], 0)


def test_who_watches_nothing_is_refused(purgatory: Purgatory[str]) -> None:
    with pytest.raises(ValueError, match="at least one key"):
        purgatory.watch(Wish(), [])


def test_who_has_been_asked_just_now_is_not_asked_again(node: VirtualNode, purgatory: Purgatory[str]) -> None:
    wish = Wish()
    purgatory.watch(wish, ["a", "b"])
    assert (wish.asked, purgatory.watched, purgatory.delayed) == (0, 2, 1)
    wish.may_end = True
    assert purgatory.check_and_complete("b") == 1
    node.advance(1000)
    assert wish.heard == ["complete"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["watch", "happen", "pass time", "cancel", "force"]),
            st.sampled_from("abc"),
            st.integers(0, 9),
        ),
        max_size=40,
    )
)
def test_whatever_happens_each_ends_at_most_once(steps: list[tuple[str, str, int]]) -> None:
    node = VirtualNode()
    purgatory: Purgatory[str] = Purgatory(node.call_later, purge_interval=2)
    wishes: list[Wish] = []
    for step, key, number in steps:
        wish = wishes[number % len(wishes)] if wishes else Wish()
        match step:
            case "watch":
                wishes.append(Wish(delay_ms=number))
                purgatory.watch(wishes[-1], list({key, "abc"[number % 3]}))
            case "happen":
                wish.may_end = True
                purgatory.check_and_complete(key)
            case "pass time":
                node.advance(number)
            case "cancel":
                purgatory.cancel(key)
            case _:
                wish.force_complete()
        assert purgatory.delayed <= len(wishes)
    node.advance(1000)
    purgatory.purge()
    assert all(wish.has_ended and wish.heard.count("complete") <= 1 for wish in wishes)
    assert purgatory.watched == 0
