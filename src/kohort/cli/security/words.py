"""Kafka's words for ACLs and mechanisms, as options take them and as tables show them."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from kohort.model.errors import ConfigError
from kohort.model.suggestion import suggestion
from kohort.security.acls.acl import PatternType, Permission
from kohort.security.operations import Operation


def _words(kind: type[IntEnum]) -> dict[str, int]:
    return {each.name.lower().replace("_", "-"): int(each) for each in kind}


OPERATIONS: Final = _words(Operation)
PATTERNS: Final = {"any": 1, "match": 2} | _words(PatternType)
PERMISSIONS: Final = _words(Permission)


def words_of(words: Mapping[str, int]) -> str:
    """The words of an option for its help."""
    return ", ".join(words)


def code_of(text: str, words: Mapping[str, int], option: str) -> int:
    """
    The code of a word, in any case; `DescribeConfigs` and `describe_configs` are `describe-configs`.

    Raises:
        ConfigError: there is no such word.
    """
    plain = {word.replace("-", ""): code for word, code in words.items()}
    code = plain.get(text.lower().replace("-", "").replace("_", ""))
    if code is None:
        raise ConfigError(f"{option} {text!r} is none of {words_of(words)}{suggestion(text, words)}")
    return code


def name_of(code: int, kind: type[IntEnum]) -> str:
    """Kafka's name of a code; one that is not known is a number."""
    return kind(code).name if code in kind._value2member_map_ else f"UNKNOWN({code})"


def check_principal(text: str) -> None:
    """
    Raises:
        ConfigError: the text is not a type and a name.
    """
    if ":" not in text:
        raise ConfigError(f"{text!r} is not a principal of the form TYPE:NAME, such as User:alice")
