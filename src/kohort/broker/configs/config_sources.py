"""
Sources of broker configurations at the start: a file, the environment and the command line.

The environment follows the convention of Kafka's container images: `KOHORT_NUM_PARTITIONS=3` sets `num.partitions`. A dot is
written as an underscore, an underscore as two, a dash as three.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kohort.model.errors import ConfigError
from kohort.model.properties import parse_properties

PREFIXES: Final = ("KOHORT_SET_", "KOHORT_")
"""The second wins. A name with the first prefix is a configuration in any case, also if Kohort does not know it."""

_OF_LISTENERS: Final = "listener.name."


def read_sources(
    sets: Iterable[str], file: Path | None, environment: Mapping[str, str], known: Collection[str]
) -> dict[str, str]:
    """
    Read configurations from a file, the environment and `KEY=VALUE` texts; later sources win.

    Args:
        known: names of configurations. Variables of the environment whose name is not among them belong to something else.

    Raises:
        ConfigError: the file cannot be read, or a text is not `KEY=VALUE`.
    """
    return {key: value for _, values in named_sources(sets, file, environment, known) for key, value in values.items()}


def named_sources(
    sets: Iterable[str], file: Path | None, environment: Mapping[str, str], known: Collection[str]
) -> Iterator[tuple[str, dict[str, str]]]:
    """The name of each source and what it sets; later sources win. Arguments and errors: as `read_sources`."""
    if file is not None:
        yield str(file), read_file(file)
    yield "environment", read_environment(environment, known)
    yield "command line", dict(_split_assignment(text) for text in sets)


def _split_assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(f"Expected KEY=VALUE, not {text!r}")
    return name.strip(), value.strip()


def read_environment(environment: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Read `KOHORT_LOG_RETENTION_MS` as `log.retention.ms`."""
    found: dict[str, str] = {}
    first, second = PREFIXES
    for variable, value in sorted(environment.items()):
        if variable.startswith(first):
            found.setdefault(_name_of(variable.removeprefix(first)), value)
        elif variable.startswith(second):
            name = _name_of(variable.removeprefix(second))
            if name in known or name.startswith(_OF_LISTENERS):
                found[name] = value
    return found


def _name_of(variable: str) -> str:
    """Source: the `configure` script of Apache Kafka's container images."""
    text = variable.lower().replace("___", "-").replace("__", "\0").replace("_", ".")
    return text.replace("\0", "_")


def read_file(path: Path) -> dict[str, str]:
    """
    Read configurations from a file: TOML if its name ends in `.toml`, else Java properties.

    Raises:
        ConfigError: the file cannot be read or parsed.
    """
    read: Callable[[str], dict[str, str]] = _read_toml if path.suffix == ".toml" else parse_properties
    try:
        return read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"Cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"Cannot parse {path}: {error}") from error


def _read_toml(text: str) -> dict[str, str]:
    import tomllib

    return dict(_flatten("", tomllib.loads(text)))


def _flatten(prefix: str, table: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    for name, value in table.items():
        match value:
            case dict():
                yield from _flatten(f"{prefix}{name}.", value)
            case list():
                yield prefix + name, ",".join(map(str, value))
            case bool():
                yield prefix + name, str(value).lower()
            case _:
                yield prefix + name, str(value)
