"""A file of faults that are there from the start: `kohort serve --faults FILE`, in TOML or JSON."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kohort.control.kit import Kit
from kohort.control.requests.faults import FaultSpec
from kohort.control.web.api import sentence_of
from kohort.control.web.problems import Problem
from kohort.model.errors import ConfigError


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of the file."""

    faults: Sequence[dict[str, Any]] = ()


def add_faults(kit: Kit, file: Path) -> None:
    """
    Add the faults of a file.

    Raises:
        ConfigError: the file cannot be read, or a fault of it is wrong.
    """
    try:
        text = file.read_text()
        given = msgspec.json.decode(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"cannot read the file of faults {file}: {error.strerror}") from None
    except (msgspec.DecodeError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        form = "JSON" if file.suffix == ".json" else "TOML"
        raise ConfigError(f"the file of faults {file} is not {form}: {error}") from None
    kind: Any = _Content
    where = str(file)
    try:
        for number, each in enumerate(msgspec.convert(given, _Content).faults, 1):
            kind, where = FaultSpec, f"fault {number} of {file}"
            kit.add_fault(msgspec.convert(each, FaultSpec))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {sentence_of(error, kind)}") from None
    except Problem as problem:
        raise ConfigError(f"{where}: {problem.detail}") from None
