"""One run at a time publishes into a directory."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort.model.errors import ConfigError

_FILE = ".lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Hold the directory, made if need be; a killed process holds nothing any more.

    Raises:
        ConfigError: another run holds it, or it cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / _FILE).open("w")
    except OSError as exc:
        raise ConfigError(f"{directory} cannot be written: {exc.strerror}") from exc
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise ConfigError(f"another run is publishing into {directory}") from exc
        yield
