"""The pointer of published tables, `current.json`: which version is current, and what it was made from."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError

POINTER = "current.json"
VERSIONS = "versions"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Published:
    """A published version: its number, its source, and the state of the source as JSON (`fingerprint`)."""

    directory: str | Path
    version: int
    source: str
    fingerprint: Any

    @property
    def path(self) -> Path:
        """The directory of its tables, in a local directory."""
        return Path(self.directory) / VERSIONS / str(self.version)


def parse_pointer(directory: str | Path, text: str) -> Published:
    """
    Parse a pointer file.

    Raises:
        ConfigError: it is malformed, or of a newer release.
    """
    pointer = f"{str(directory).rstrip('/')}/{POINTER}"
    try:
        pointed_to = json.loads(text)
        if pointed_to["format"] != FORMAT:
            raise ConfigError(f"{pointer} was written by a newer release of Kohort")
        return Published(directory, pointed_to["version"], pointed_to["source"], pointed_to["fingerprint"])
    except (ValueError, KeyError, TypeError) as exc:
        raise ConfigError(f"{pointer} does not say which tables are current: {exc}") from exc


def replace_file(path: Path, text: str) -> None:
    """Replace a file atomically, also under a power cut."""
    beside = path.with_name(f".{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    sync_entry(path.parent)


def sync_entry(path: str | Path) -> None:
    """Flush a file, or the entries of a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
