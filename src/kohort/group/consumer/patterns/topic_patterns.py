"""
Regular expressions over topic names: their syntax is RE2's, and they match whole names.

google-re2 is the C++ original of RE2/J, which Kafka uses. Matching takes time linear in the name, whatever the pattern. What a
pattern may cost is bounded before it is accepted, because members choose it (`kohort.model.limits`, docs/limits.md).

Source: Kafka Utils.throwIfRegularExpressionIsInvalid, GroupMetadataManager.refreshRegularExpressions.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

from kohort.group.consumer.subscriptions import NO_TOPICS
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.limits import PATTERN_CLASSES_MAX, PATTERN_LENGTH_MAX, PATTERN_PROGRAM_BYTES_MAX

_UNICODE_CLASS: Final = re.compile(r"\\[pP]")
_TOKEN: Final = re.compile(r"(\\.)|\(\?P?<(\w+)>", re.DOTALL)
"""An escape sequence, or the beginning of a capture group with its name."""

_DESCRIPTIONS: Final = (
    # The beginning of RE2's error, and RE2/J's description of the same error.
    ("missing )", "missing closing )"),
    ("missing ]", "missing closing ]"),
    ("unexpected )", "regexp/syntax: internal error"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("invalid repetition size", "invalid repeat count"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid named capture group", "invalid named capture"),
    ("invalid perl operator: (?<", "invalid named capture"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid character class range", "invalid character class range"),
)
_EVERYTHING: Final = "(?s).*"
"""The first pattern of each set. A name without any match means that the automaton of the set ran out of memory."""


def check_pattern(pattern: str) -> None:
    """
    Raises:
        CoordinatorError: INVALID_REGULAR_EXPRESSION, the pattern is not an expression of RE2, or it costs too much.
    """
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise _invalid(f"{pattern[:PATTERN_LENGTH_MAX]}...", f"longer than {PATTERN_LENGTH_MAX} characters")
    if len(_UNICODE_CLASS.findall(pattern)) > PATTERN_CLASSES_MAX:
        raise _invalid(pattern, f"more than {PATTERN_CLASSES_MAX} Unicode classes")
    # Imported late: few groups have patterns.
    import re2

    try:
        re2.compile(pattern, _options(PATTERN_PROGRAM_BYTES_MAX))
    except UnicodeEncodeError:
        raise _invalid(ascii(pattern), "not a sequence of Unicode characters") from None
    except re2.error as error:
        raise _invalid(pattern, _description(error)) from None
    # Only RE2/J, which Kafka uses, refuses these.
    tokens = _TOKEN.findall(pattern)
    if any(escape == r"\C" for escape, _ in tokens):
        raise _invalid(pattern, "invalid escape sequence")
    names = [name for _, name in tokens if name]
    if len(set(names)) < len(names):
        raise _invalid(pattern, "duplicate capture group name")


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

    finder = re2.Set.FullMatchSet(_options())
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
        return re2.compile(pattern, _options())
    except re2.error:
        return None


@cache
def _options(max_mem: int | None = None) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    if max_mem is not None:
        options.max_mem = max_mem
    return options


def _description(error: Exception) -> str:
    text = error.args[0].decode(errors="replace")
    return next((described for start, described in _DESCRIPTIONS if text.startswith(start)), text)


def _invalid(pattern: str, description: str) -> CoordinatorError:
    return CoordinatorError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {description}.",
    )
