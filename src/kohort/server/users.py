"""
Users that a broker is started with: `--user NAME:SECRET`, lines of `--users-file`, and lines of `KOHORT_USERS`.

They exist for PLAIN and for both SCRAM mechanisms. Nothing here shows a secret.
"""

import logging
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from kohort.model.errors import ConfigError
from kohort.server.settings import Passwords

VARIABLE: Final = "KOHORT_USERS"
_OTHERS: Final = stat.S_IROTH | stat.S_IWOTH

_log: Final = logging.getLogger("kohort.server")


def read_users(options: Iterable[str], file: Path | None, environment: Mapping[str, str]) -> Passwords:
    """
    Read the users of a file, of the environment and of options; later sources win.

    Raises:
        ConfigError: the file cannot be read, or a user has another form than `NAME:SECRET`.
    """
    users = Passwords()
    if file is not None:
        users |= _of_file(file)
    users |= _of_lines(environment.get(VARIABLE, ""), VARIABLE)
    given = list(options)
    for number, text in enumerate(given, 1):
        users |= [_user(text, f"--user number {number}")]
    if given:
        _log.warning(
            "users.on_command_line count=%d hint=%r",
            len(given),
            f"everyone on this machine sees the secrets in the list of processes; use --users-file or {VARIABLE}",
        )
    return users


def _of_file(file: Path) -> Passwords:
    try:
        text = file.read_text(encoding="utf-8")
        mode = file.stat().st_mode
    except OSError as error:
        raise ConfigError(f"cannot read the users file {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"the users file {file} is not a text in UTF-8") from None
    if mode & _OTHERS:
        _log.warning("users.file_of_others path=%r hint=%r", str(file), f"other users may use it: chmod o-rw {file}")
    return _of_lines(text, str(file))


def _of_lines(text: str, source: str) -> Passwords:
    """One user a line; blank lines and lines that begin with # do not count."""
    lines = ((number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1))
    return Passwords(_user(line, f"line {n} of {source}") for n, line in lines if line.strip() and line[0] != "#")


def _user(text: str, where: str) -> tuple[str, str]:
    name, separator, secret = text.partition(":")
    if not separator or not name or not secret or "\0" in text:
        raise ConfigError(f"{where} is no user: write NAME:SECRET, both not empty")
    return name, secret
