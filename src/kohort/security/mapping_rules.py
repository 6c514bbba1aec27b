r"""
`ssl.principal.mapping.rules`: which user a certificate's distinguished name stands for.

    rules: rule {"," rule}         blanks around a rule are dropped, empty rules are ignored
    rule:  "DEFAULT" | "RULE:" pattern "/" replacement "/" ["L" | "U"]

The first rule whose pattern matches the whole name wins. Patterns are RE2's: linear in time, with everything of Java's but
lookaround, back references within a pattern, and possessive quantifiers.

Source: KIP-371; Kafka SslPrincipalMapper; java.util.regex.Matcher.replaceAll, appendReplacement.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from kohort.model.errors import ConfigError
from kohort.model.limits import DISTINGUISHED_NAME_LENGTH_MAX

KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))?\s*(?:,|\Z)", re.DOTALL)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_SEPARATORS: Final = re.compile("[\r\x85\u2028\u2029]")
"""Ends of lines for Java's patterns, which a dot does not match. A name with one of them has no user."""


class MappingRules:
    """
    The rules of one listener.

    Args:
        text: of the configuration.

    Raises:
        ConfigError: it is not a list of rules, or a pattern or a replacement is not valid.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule | None] = []
        """None stands for DEFAULT."""
        position = 0
        text = text.strip()
        while position < len(text):
            match = _RULE.match(text, position)
            if match is None:
                raise ConfigError(
                    f"{KEY}: invalid rule {text[position:]!r}; write DEFAULT, or RULE:PATTERN/REPLACEMENT/ and maybe L or U"
                )
            position = match.end()
            if match[1] is not None:
                self._rules.append(None)
            elif match[2] is not None:
                self._rules.append(_Rule(match[2], match[3], match[4]))

    def user_of(self, name: str) -> str | None:
        """The user that a distinguished name stands for; None if no rule applies to it."""
        if len(name) > DISTINGUISHED_NAME_LENGTH_MAX:
            return None
        for rule in self._rules:
            if rule is None:
                return name
            if rule.matches(name):
                return rule.user_of(name)
        return None


class _Rule:
    def __init__(self, pattern: str, replacement: str, fold: str) -> None:
        # Imported late: most brokers have no rules.
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            self._regexp: Any = re2.compile(pattern, options)
        except re2.error as error:
            raise ConfigError(
                f"{KEY}: the pattern {pattern!r} is not valid ({error.args[0].decode(errors='replace')}). Patterns are those "
                "of RE2, without lookaround, back references and possessive quantifiers"
            ) from None
        self._pattern = pattern
        self._replacement = _escape_references(replacement, self._regexp.groups)
        self._fold = fold
        try:
            _expand(self._replacement, ("",) * (self._regexp.groups + 1), self._regexp.groupindex)
        except ValueError as error:
            raise ConfigError(f"{KEY}: the replacement {replacement!r} has {error}") from None
        except LookupError:
            pass
            # Kafka finds it at the first certificate, and closes the connection.

    def matches(self, name: str) -> bool:
        return _SEPARATORS.search(name) is None and self._regexp.fullmatch(name) is not None

    def user_of(self, name: str) -> str | None:
        """Replace each match, as Java does: behind a match up to the end of the name there may be an empty one."""
        parts: list[str] = []
        position = low = 0
        while position <= len(name):
            match = self._regexp.search(name, position)
            if match is None:
                break
            groups = tuple(match[number] or "" for number in range(self._regexp.groups + 1))
            try:
                parts += (name[low : match.start()], _expand(self._replacement, groups, self._regexp.groupindex))
            except LookupError:
                return None
            low = match.end()
            position = low if match.end() > match.start() else low + 1
        user = "".join(parts) + name[low:]
        return user.lower() if self._fold == "L" else user.upper() if self._fold == "U" else user


def _escape_references(replacement: str, groups: int) -> str:
    """
    Escape references to groups that do not exist, so that they are text.

    Source: SslPrincipalMapper.escapeLiteralBackReferences, whose positions are those of the text before the first change.
    """
    if not groups:
        return replacement
    value = replacement
    for match in _REFERENCE.finditer(replacement):
        if match[1].startswith("0"):
            continue
        number = int(match[1])
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            dollar = match.start()
            value = f"{value[:dollar]}\\{value[dollar:]}"
    return value


def _expand(replacement: str, groups: tuple[str, ...], names: Mapping[str, int]) -> str:
    """
    Put groups into a replacement.

    Raises:
        ValueError: the replacement is malformed.
        LookupError: it refers to a group that does not exist.

    Source: java.util.regex.Matcher.appendExpandedReplacement.
    """
    parts: list[str] = []
    position = 0
    while position < len(replacement):
        sign, position = replacement[position], position + 1
        if sign not in "\\$":
            parts.append(sign)
        elif position == len(replacement):
            raise ValueError(f"a {sign} at its end")
        elif sign == "\\":
            parts.append(replacement[position])
            position += 1
        elif replacement[position] == "{":
            name, closing, _ = replacement[position + 1 :].partition("}")
            if not closing or name not in names:
                raise ValueError(f"an unknown group {name!r}")
            parts.append(groups[names[name]])
            position += len(name) + 2
        else:
            number, position = _group_number(replacement, position, len(groups) - 1)
            parts.append(groups[number])
    return "".join(parts)


def _group_number(replacement: str, position: int, groups: int) -> tuple[int, int]:
    """The number of a group: as many digits as there is such a group for."""
    digit = replacement[position]
    if digit not in "0123456789":
        raise ValueError(f"${digit}, which is no reference to a group")
    number, position = int(digit), position + 1
    while position < len(replacement) and replacement[position] in "0123456789":
        longer = number * 10 + int(replacement[position])
        if longer > groups:
            break
        number, position = longer, position + 1
    return number, position
