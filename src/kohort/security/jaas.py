"""
The text of `sasl.jaas.config`: one login module with its options.

Words are those of Java's StreamTokenizer: letters, digits, `.`, `-`, `_` and `$`, and everything beyond ASCII from U+00A0 on;
quoted texts have escapes; comments begin with `/`. A word that begins with a digit or a sign is a number, and so no value.

Only Kafka's modules are known, and nothing is loaded: a module's name says which options are read.

Source: Kafka JaasConfig, JaasContext; java.io.StreamTokenizer.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kohort.model.errors import ConfigError

KEY: Final = "sasl.jaas.config"
PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_FLAGS: Final = ("REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL")
_USER: Final = "user_"
# The characters of words are given as the others below U+00A0: a range up to U+10FFFF takes 15 ms to compile.
_TOKEN: Final = re.compile(
    r"""(?P<blank>[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*)
    |(?P<number>-?\.*+\d[\d.]*|-)
    |(?P<word>[^\x00-\x23\x25-\x40\x5b-\x5e\x60\x7b-\x9f][^\x00-\x23\x25-\x2c\x2f\x3a-\x40\x5b-\x5e\x60\x7b-\x9f]*)
    |(?P<quoted>"(?P<double>(?:[^"\\\r\n]|\\.)*)(?:"|(?=[\r\n])|\Z)|'(?P<single>(?:[^'\\\r\n]|\\.)*)(?:'|(?=[\r\n])|\Z))
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class LoginModule(NamedTuple):
    """The module that a text names. `repr()` shows no option."""

    name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name!r})"

    @property
    def users(self) -> dict[str, str]:
        """Names and passwords: the options `user_NAME="PASSWORD"`."""
        return {key.removeprefix(_USER): value for key, value in self.options.items() if key.startswith(_USER)}


class _Token(NamedTuple):
    """A word or a quoted text has a text; a sign is itself; a number has none."""

    text: str | None
    sign: str = ""


def parse_jaas(text: str) -> LoginModule:
    """
    Read the text of one login module.

    Raises:
        ConfigError: with Kafka's sentence; it shows no value.
    """
    try:
        modules = list(_modules(text))
    except ValueError as error:
        raise ConfigError(f"{KEY}: {error}") from None
    if len(modules) != 1:
        raise ConfigError(f"{KEY}: JAAS config property contains {len(modules)} login modules, should be 1 module")
    return modules[0]


def _modules(text: str) -> Iterator[LoginModule]:
    tokens = _tokens(text)
    for token in tokens:
        flag = next(tokens, None)
        if flag is None:
            raise ValueError("Login module control flag not specified in JAAS config")
        if flag.text is None or flag.text.upper() not in _FLAGS:
            raise ValueError("Invalid login module control flag in JAAS config")
        options = _options(tokens)
        if token.text is None:
            raise ValueError("Login module not specified in JAAS config")
        yield LoginModule(token.text, options)


def _options(tokens: Iterator[_Token]) -> dict[str, str]:
    options: dict[str, str] = {}
    for token in tokens:
        if token.sign == ";":
            return options
        sign, value = next(tokens, None), None
        if sign is not None and sign.sign == "=":
            value = next(tokens, None)
        if value is None or value.text is None or token.text is None:
            raise ValueError(f"Value not specified for key '{token.text or ''}' in JAAS config")
        options[token.text] = value.text
    raise ValueError("JAAS config entry not terminated by semi-colon")


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        match match.lastgroup:
            case "word":
                yield _Token(match["word"])
            case "quoted":
                quoted = match["double"] if match["double"] is not None else match["single"]
                yield _Token(_ESCAPE.sub(_unescaped, quoted))
            case "number":
                yield _Token(None)
            case "sign":
                yield _Token(None, match["sign"])


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _CONTROLS.get(escaped, escaped)
