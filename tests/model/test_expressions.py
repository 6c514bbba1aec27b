"""Regular expressions that clients choose cost a bounded time and memory, to compile and to match."""

import pytest
import re2

from kohort.model.expressions import ExpensiveMatchError, Expression, ExpressionError
from kohort.model.limits import MATCH_STEPS_MAX, PATTERN_CLASSES_MAX, PATTERN_LENGTH_MAX

EXPENSIVE = [
    "a" * (PATTERN_LENGTH_MAX + 1),
    r"\pL" * 10_000,
    r"\PL" * (PATTERN_CLASSES_MAX + 1),
    r"[\pL]" * (PATTERN_CLASSES_MAX + 1),
    r"\p{Greek}" * (PATTERN_CLASSES_MAX + 1),
]


@pytest.mark.parametrize("pattern", EXPENSIVE)
def test_an_expensive_expression_is_refused_before_it_is_compiled(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(re2, "compile", lambda *_: pytest.fail("it is compiled"))
    with pytest.raises(ExpressionError, match=r"^(longer than 1024 characters|more than 4 Unicode classes)$"):
        Expression(pattern)


@pytest.mark.parametrize("pattern", [r".{1000}" * 2, r"(?i)" + r"\pL" * 4 + r".{900}" * 3, r"((.{30}){30}){30}"])
def test_the_memory_of_a_compiled_expression_is_bounded(pattern: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(pattern)


@pytest.mark.parametrize("pattern", [r"(?:0|1)*0(?:.{900})", r"(0|1)*0(0|1){900}", r"\pL" * 4, "(0?){500}0{500}"])
def test_matching_is_linear_in_the_text_and_bounded(pattern: str) -> None:
    expression = Expression(pattern)
    longest = MATCH_STEPS_MAX // expression.steps
    assert longest >= 249  # a topic name, with the largest expression
    assert expression.matches("01" * (longest // 2)) in (True, False)
    assert expression.cost("0" * longest) <= MATCH_STEPS_MAX + expression.steps
    with pytest.raises(ExpensiveMatchError):
        expression.matches("0" * (longest + 1))


def test_the_whole_text_has_to_match() -> None:
    assert [Expression("a|ab").matches(text) for text in ("a", "ab", "abc", "é")] == [True, True, False, False]
    assert Expression("é+").matches("éé")
