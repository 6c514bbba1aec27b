"""
The address of a store in PostgreSQL: `postgresql://USER@HOST:PORT/DATABASE`, as libpq takes it.

Sources stand in plans of Spark, in published tables, in reports and in messages. So the address of a source has no password:
libpq takes it from PGPASSWORD or from `~/.pgpass`.
"""

from urllib.parse import unquote, urlsplit, urlunsplit

from kohort.model.errors import ConfigError

_PREFIXES = ("postgresql://", "postgres://")
_PASSWORD = "password"  # noqa: S105  (the name of an option)
_SECRETS = frozenset({_PASSWORD, "sslpassword"})


def is_database(path: str) -> bool:
    """Tell whether a source is a store in PostgreSQL."""
    return path.startswith(_PREFIXES)


def split_password(path: str) -> tuple[str, str | None]:
    """
    Return an address without its password, and the password.

    Raises:
        ConfigError: the address cannot be read.
    """
    try:
        parts = urlsplit(path, allow_fragments=False)
    except ValueError:
        raise _unreadable() from None
    user, is_user, hosts = parts.netloc.rpartition("@")
    user, _, word = user.partition(":")
    given = [option.partition("=") for option in parts.query.split("&") if option]
    # A special character of a password may look like the end of the host, and the rest like a database.
    if "@" in parts.path or "@" in parts.query or any(name == "sslpassword" for name, _, _ in given):
        raise _unreadable()
    words = [word, *(value for name, _, value in given if name == _PASSWORD)]
    query = "&".join("".join(option) for option in given if option[0] not in _SECRETS)
    netloc = f"{user}{is_user}{hosts}"
    found = urlunsplit((parts.scheme, netloc, parts.path, query, ""))
    if not netloc:
        found = found.replace(f"{parts.scheme}:", f"{parts.scheme}://", 1)
    return found, next((unquote(one) for one in reversed(words) if one), None)


def check_address(path: str) -> None:
    """
    Raises:
        ConfigError: the address cannot be read, or has a password.
    """
    if split_password(path)[1] is not None:
        raise ConfigError(
            "the address of a source has no password, because plans and tables show it: set PGPASSWORD (on executors of Spark"
            " spark.executorEnv.PGPASSWORD), or write the password into ~/.pgpass"
        )


def _unreadable() -> ConfigError:
    # Its message may have a part of the password.
    return ConfigError(
        "the address of the store cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE?OPTION=VALUE, with"
        " special characters as %XX, and without sslpassword"
    )
