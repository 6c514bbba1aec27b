"""The control port that commands ask, and the values that they send to it."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from kohort.client.control import ControlClient
from kohort.model.errors import ConfigError
from kohort.security.http_access import CONTROL_VARIABLE, read_token

PORT_DEFAULT = "127.0.0.1:9192"
ADDRESS_VARIABLE = "KOHORT_CONTROL_ADDRESS"
SECONDS = 10.0

Address: TypeAlias = Annotated[
    str,
    typer.Option(
        "--control",
        metavar="HOST:PORT",
        envvar=ADDRESS_VARIABLE,
        help="Address of the control port of `kohort serve --control-port`.",
    ),
]
TokenFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--control-token-file",
        metavar="FILE",
        help=f"The token of the control port; the environment variable {CONTROL_VARIABLE} has it, too.",
    ),
]
Timeout: TypeAlias = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, max=600, help="Longest wait.")
]
Scope: TypeAlias = Annotated[str | None, typer.Option("--scope", metavar="SCOPE", help="Of one test only.")]
Pairs: TypeAlias = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY=VALUE... | JSON | @FILE | @-", help="Fields, or a JSON object, also from a file or standard input."
    ),
]


def control_client(address: str, token_file: Path | None) -> ControlClient:
    """
    The client of the control port.

    Raises:
        ConfigError: the token cannot be read.
        ControlError: the address has another form.
    """
    return ControlClient(address, read_token(token_file, os.environ, CONTROL_VARIABLE))


def fields_of(given: Sequence[str], types: Mapping[str, Any]) -> dict[str, Any]:
    """
    The object that the arguments describe. What has no known type is left to the broker, whose answer names the nearest field.

    Args:
        types: of the fields, by name. Several values of a list are separated by commas.

    Raises:
        ConfigError: an argument has another form, or the file cannot be read.
    """
    first = given[0]
    if len(given) == 1 and first.startswith(("{", "@")):
        return _object(_read(first[1:]) if first.startswith("@") else first.encode())
    fields = {}
    for pair in given:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise ConfigError(f"fields are KEY=VALUE, such as api=OffsetCommit; {pair!r} is not")
        fields[name] = _value(text, types.get(name, str))
    return fields


def shown_fields(spec: Mapping[str, Any]) -> str:
    """The fields of a fault or a hold in a line, without those that have a column."""
    return " ".join(f"{name}={value}" for name, value in spec.items() if name != "scope")


def _value(text: str, kind: Any) -> Any:
    if text in ("true", "false") and bool in getattr(kind, "__args__", (kind,)):
        return text == "true"
    if kind is not str and text[:1] in ("{", "["):
        return _json(text.encode())
    if "," in text and any(getattr(each, "__origin__", None) is list for each in getattr(kind, "__args__", ())):
        return text.split(",")
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        return text


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None


def _object(text: bytes) -> dict[str, Any]:
    value = _json(text)
    if not isinstance(value, dict):
        raise ConfigError('a JSON object is needed, such as {"api": "OffsetCommit", "error": "REQUEST_TIMED_OUT"}')
    return value


def _json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError(f"{text[:100].decode(errors='replace')!r} is not JSON: {error}") from None
