"""
Regular expressions that clients choose: over topics, transactional ids, and properties of clients. Their syntax is RE2's.

google-re2 is the C++ original of RE2/J, which Kafka uses. An expression is refused, before it is compiled where possible, if it
costs too much (`kohort.model.limits`, docs/limits.md). Matching takes time linear in the text, whatever the expression: at
most `steps` times the length of the text.
"""

import re
from functools import cache
from typing import Any, Final

from kohort.model.errors import KohortError
from kohort.model.limits import MATCH_STEPS_MAX, PATTERN_CLASSES_MAX, PATTERN_LENGTH_MAX, PATTERN_PROGRAM_BYTES_MAX

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


class ExpressionError(KohortError):
    """The text is not an expression of RE2, or it costs too much. The message is a description without the text."""


class ExpensiveMatchError(KohortError):
    """An expression and a text cost too much together."""


class Expression:
    """
    A compiled expression.

    Attributes:
        steps: the size of its program: the most that one byte of a text can cost.

    Raises:
        ExpressionError: it is invalid, or costs too much.
    """

    __slots__ = ("_regexp", "steps")

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise ExpressionError(f"longer than {PATTERN_LENGTH_MAX} characters")
        if unicode_classes(pattern) > PATTERN_CLASSES_MAX:
            raise ExpressionError(f"more than {PATTERN_CLASSES_MAX} Unicode classes")
        # Imported late: few clients use expressions.
        import re2

        try:
            self._regexp = re2.compile(pattern, options(PATTERN_PROGRAM_BYTES_MAX))
        except UnicodeEncodeError:
            raise ExpressionError("not a sequence of Unicode characters") from None
        except re2.error as error:
            raise ExpressionError(_description(error)) from None
        # Only RE2/J, which Kafka uses, refuses these.
        tokens = _TOKEN.findall(pattern)
        if any(escape == r"\C" for escape, _ in tokens):
            raise ExpressionError("invalid escape sequence")
        names = [name for _, name in tokens if name]
        if len(set(names)) < len(names):
            raise ExpressionError("duplicate capture group name")
        self.steps: int = self._regexp.programsize

    def cost(self, text: str) -> int:
        """The most steps that a match with this text can take."""
        return self.steps * (len(text) + 1)

    def matches(self, text: str) -> bool:
        """
        Whether the expression matches the whole text.

        Raises:
            ExpensiveMatchError: the expression and the text are both large.
        """
        encoded = text.encode()
        if self.steps * len(encoded) > MATCH_STEPS_MAX:
            raise ExpensiveMatchError(f"a text of {len(encoded)} bytes and an expression of {self.steps} instructions")
        return self._regexp.fullmatch(encoded) is not None


def unicode_classes(pattern: str) -> int:
    r"""How many Unicode classes such as `\pL` an expression has."""
    return len(_UNICODE_CLASS.findall(pattern))


@cache
def options(max_mem: int | None = None) -> Any:
    """Options of RE2: silent, without captures, with a budget of memory or RE2's own."""
    import re2

    chosen = re2.Options()
    chosen.log_errors = False
    chosen.never_capture = True
    if max_mem is not None:
        chosen.max_mem = max_mem
    return chosen


def _description(error: Exception) -> str:
    text = error.args[0].decode(errors="replace")
    return next((described for start, described in _DESCRIPTIONS if text.startswith(start)), text)
