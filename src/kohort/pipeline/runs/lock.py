"""A lock file: one run at a time publishes into a directory."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kohort.model.errors import ConfigError

_FILE = ".lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """
    Create the directory if necessary, and lock it. The system releases the lock of a killed process.

    Raises:
        ConfigError: another run holds the lock, or the directory cannot be written.
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
