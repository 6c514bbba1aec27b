"""
Regular expressions over topic names: their validation, and matching many of them at once with all names.

Source: Kafka Utils.throwIfRegularExpressionIsInvalid, GroupMetadataManager.refreshRegularExpressions.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kohort.group.consumer.subscriptions import NO_TOPICS
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.expressions import Expression, ExpressionError, options
from kohort.model.limits import PATTERN_LENGTH_MAX

_EVERYTHING: Final = "(?s).*"
"""The first pattern of each set. A name without any match means that the automaton of the set ran out of memory."""


def check_pattern(pattern: str) -> None:
    """
    Raises:
        CoordinatorError: INVALID_REGULAR_EXPRESSION, the pattern is not an expression of RE2, or it costs too much.
    """
    try:
        Expression(pattern)
    except ExpressionError as error:
        shown = pattern.encode(errors="backslashreplace").decode()
        if len(shown) > PATTERN_LENGTH_MAX:
            shown = f"{shown[:PATTERN_LENGTH_MAX]}..."
        raise CoordinatorError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {error}.",
        ) from None


def match_topics(patterns: Sequence[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """
    The names that each pattern matches. A pattern of an old log that is invalid here matches none. May run on any thread.

    All patterns are matched in one pass over a name: 100 patterns do not take 100 times as long as one.
    """
    compiled = {pattern: regexp for pattern in patterns if (regexp := _compiled(pattern)) is not None}
    matched: list[list[str]] = [[] for _ in compiled]
    finder = _finder(compiled)
    for name in names:
        encoded = name.encode()
        found = None if finder is None else finder.Match(encoded)
        if found:
            for index in found:
                if index:
                    matched[index - 1].append(name)
            continue
        for topics, regexp in zip(matched, compiled.values(), strict=True):
            if regexp.fullmatch(encoded):
                topics.append(name)
    return dict.fromkeys(patterns, NO_TOPICS) | dict(zip(compiled, map(frozenset, matched), strict=True))


def _finder(patterns: Iterable[str]) -> Any:
    """A set of patterns that finds the indexes of all that match a name, from 1 on; None if it needs too much memory."""
    import re2

    finder = re2.Set.FullMatchSet(options())
    for pattern in (_EVERYTHING, *patterns):
        finder.Add(pattern)
    try:
        finder.Compile()
    except re2.error:
        return None
    return finder


def _compiled(pattern: str) -> Any:
    import re2

    try:
        return re2.compile(pattern, options())
    except re2.error:
        return None
