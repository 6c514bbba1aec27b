"""Regular expressions over topic names: the same are valid as in Apache Kafka, with the same messages, and matching."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import re2

from kohort.group.consumer import patterns
from kohort.group.consumer.patterns import check_pattern, match_topics
from kohort.model.errors import CoordinatorError

DATA = Path(__file__).parents[2] / "data" / "topic-patterns-4.2.1.json"
"""Patterns, and the message of Apache Kafka 4.2.1 or null, as `python -m tests.group.consumer.record_patterns` writes them."""

DIFFERENT = {
    "((a{100}){100}){100}",  # RE2 bounds nested repetitions
    "((a{10}){10}){11}",
    "(a{1000}){1000}",
    r"\é",
    "a{99999999999}",  # literal text in RE2
}
"""As docs/unsupported.md says: RE2 accepts or refuses them, and RE2/J does not."""

with DATA.open() as file:
    RECORDED: dict[str, str | None] = dict(json.load(file))


def answer(pattern: str) -> str | None:
    try:
        check_pattern(pattern)
    except CoordinatorError as error:
        return error.message
    return None


def test_the_same_patterns_are_valid_as_in_kafka_and_the_messages_are_the_same() -> None:
    assert len(RECORDED) > 100
    wrong = {
        pattern: (answer(pattern), expected) for pattern, expected in RECORDED.items() if answer(pattern) != expected
    }
    assert set(wrong) == DIFFERENT


NAMES = ("orders", "orders-eu", "Orders", "payments", "_internal", "a.b", "x" * 249)


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("orders", {"orders"}),
        ("orders.*", {"orders", "orders-eu"}),
        ("(?i)orders", {"orders", "Orders"}),
        ("orders|payments", {"orders", "payments"}),
        (r"\w+\.\w", {"a.b"}),
        ("^orders$", {"orders"}),
        ("", set()),
        ("é?orders", {"orders"}),
        (r"\pL+", {"orders", "Orders", "payments", "x" * 249}),
        (".*", set(NAMES)),
        ("(", set()),
    ],
)
@pytest.mark.parametrize("finder", ["a set", "a set out of memory", "no set"])
def test_matching(pattern: str, matched: set[str], finder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # If the automaton of the set needs too much memory, the patterns are matched one by one.
    if finder == "no set":
        monkeypatch.setattr(patterns, "_finder", lambda _patterns: None)
    elif finder == "a set out of memory":
        monkeypatch.setattr(patterns, "_finder", lambda _patterns: SimpleNamespace(Match=lambda _name: None))
    assert match_topics(("zzz", pattern, "orders"), NAMES) == {
        "zzz": frozenset(),
        pattern: frozenset(matched),
        "orders": frozenset({"orders"}),
    }


def test_patterns_that_together_need_much_memory_match_as_they_do_alone() -> None:
    patterns = [f".*[a-f].{{{index}}}x.*[0-9].{{{index + 3}}}y" for index in range(40)]
    names = [f"{'abcdef'[index % 6]}{'z' * (index % 40)}x{index % 10}{'w' * (index % 40 + 3)}y" for index in range(400)]
    together = match_topics(patterns, names)
    assert any(together.values())
    for pattern in patterns:
        assert together[pattern] == frozenset(name for name in names if re2.fullmatch(pattern, name))
