"""The verdict of the torture of nodes: each kind of damage is found."""

import pytest

from kohort_lab.served_nodes.ledger import Ledger, Place, judge

T: Place = ("t", 0)
RIGHT = [(0, b"w:0"), (1, b"w:1"), (2, b"v:0")]


def ledger() -> Ledger:
    made = Ledger()
    for offset, value in RIGHT:
        made.on_record(*T, offset, value)
    made.unwanted.add(b"aborted:0")
    made.whole.append(frozenset((b"w:1", b"v:0")))
    return made


def test_what_is_as_acknowledged_is_right() -> None:
    verdict = judge(ledger(), {T: [*RIGHT, (3, b"x:0")]})
    assert verdict.is_right
    assert (verdict.acknowledged, verdict.found) == (3, 4)


def test_a_record_whose_offset_the_client_does_not_know_has_to_be_in_its_partition() -> None:
    made = ledger()
    made.on_record(*T, None, b"w:2")
    assert judge(made, {T: [*RIGHT, (3, b"w:2")]}).is_right
    assert judge(made, {T: RIGHT}).lost == 1
    assert judge(made, {T: RIGHT, ("t", 1): [(0, b"w:2")]}).lost == 1


@pytest.mark.parametrize(
    ("found", "damage"),
    [
        ([(1, b"w:1"), (2, b"v:0")], "lost"),
        ([(0, b"w:1"), (1, b"w:0"), (2, b"v:0")], "reordered"),
        ([*RIGHT, (3, b"w:1")], "doubled"),
        ([*RIGHT, (3, b"aborted:0")], "aborted_seen"),
        ([(0, b"w:0"), (1, b"w:1"), (2, b"x:0")], "torn"),
    ],
)
def test_each_kind_of_damage_is_found(found: list[tuple[int, bytes]], damage: str) -> None:
    verdict = judge(ledger(), {T: found})
    assert not verdict.is_right
    assert getattr(verdict, damage) == 1
    assert verdict.examples


def test_the_highest_commit_of_each_partition_counts() -> None:
    made = ledger()
    for offset in (3, 7, 5):
        made.on_commit("g", *T, offset)
    made.on_commit("other", *T, 9)
    assert made.commits("g") == {T: 7}
