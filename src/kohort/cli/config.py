"""`kohort config`: the configurations that a broker would have, and what they mean."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from kohort.cli.options import AsJson
from kohort.cli.output import print_rows
from kohort.model.errors import ConfigError
from kohort.model.suggestion import suggestion

if TYPE_CHECKING:
    from kohort.broker.configs.definitions import ConfigKey

EPILOG = """\
\b
  kohort config                                   all configurations with an effect
  kohort config retention compression             those with one of these words in their name
  kohort config 'log.*.ms' --all                  those of this form, also without an effect
  kohort config --config server.properties --changed
  kohort config --kind topic --json"""

_COLUMNS: Final = ("key", "value", "source", "change", "effect", "meaning")
_KINDS: Final = ("broker", "topic", "group", "client-metrics")
HIDDEN: Final = "(hidden)"


def config(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Parts of names, or patterns with * and ?.", show_default=False),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="File of broker configurations, as for `serve`.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Broker configuration, as for `serve`.")
    ] = None,
    kind: Annotated[str, typer.Option(metavar="KIND", help=f"{', '.join(_KINDS)}.")] = "broker",
    only_changed: Annotated[bool, typer.Option("--changed", help="Only what differs from the default.")] = False,
    show_all: Annotated[bool, typer.Option("--all", help="Also configurations without an effect.")] = False,
    as_json: AsJson = False,
) -> None:
    """
    Print configurations with value, source and meaning.

    Values come from the file, the environment and --set, as `kohort serve` reads them. Names that Kohort does not know are
    shown with --changed. `kafka-configs` shows the values of a running broker.
    """
    rows = list(_rows(kind, file, sets or ()))
    for name in names or ():
        if not any(_matches(row["key"], name) for row in rows):
            near = suggestion(name, [row["key"] for row in rows])
            raise ConfigError(f"no {kind} configuration has {name!r} in its name{near or '; see: kohort config --all'}")
    wanted = [
        row
        for row in rows
        if (show_all or only_changed or as_json or names or row["effect"])
        and (not only_changed or row["source"] != "default")
        and (not names or any(_matches(row["key"], name) for name in names))
    ]
    print_rows(_COLUMNS, wanted, is_json=as_json)


def _matches(key: str, name: str) -> bool:
    return fnmatchcase(key, name) if any(sign in name for sign in "*?[") else name in key


def _rows(kind: str, file: Path | None, sets: Sequence[str]) -> Iterator[dict[str, Any]]:
    import os

    import msgspec

    from kohort.broker.configs.config_sources import named_sources
    from kohort.broker.configs.definitions import (
        BROKER_KEYS,
        CLIENT_METRICS_KEYS,
        GROUP_KEYS,
        TOPIC_KEYS,
        BrokerConfig,
        known_key,
    )

    if kind not in _KINDS:
        raise ConfigError(f"there is no kind {kind!r} of configurations; there are {', '.join(_KINDS)}")
    if kind != "broker":
        keys = {"topic": TOPIC_KEYS, "group": GROUP_KEYS, "client-metrics": CLIENT_METRICS_KEYS}[kind]
        for key in keys.values():
            yield _row(key, key.default, "default")
        return
    sources: dict[str, str] = {}
    merged: dict[str, str] = {}
    for source, values in named_sources(sets, file, os.environ, BROKER_KEYS):
        merged |= values
        sources |= dict.fromkeys(values, source)
    broker = BrokerConfig(merged)
    for key in BROKER_KEYS.values():
        yield _row(key, broker.text(key.name), sources.get(key.name, "default"))
    for name, text in broker.of_listeners.items():
        of_listener = known_key(name)
        assert of_listener is not None, name
        yield _row(msgspec.structs.replace(of_listener, name=name, default=None), text, sources[name])
    for name, hint in broker.unknown.items():
        meaning = f"Not known to Kohort; similar is {hint}." if hint else "Not known to Kohort."
        yield {"key": name, "value": HIDDEN, "source": sources[name], "change": "", "effect": False, "meaning": meaning}


def _row(key: "ConfigKey", value: str | None, source: str) -> dict[str, Any]:
    return {
        "key": key.name,
        "value": HIDDEN if key.is_sensitive and value is not None else value,
        "source": source,
        "change": str(key.update_mode),
        "effect": key.has_effect,
        "meaning": key.documentation,
        "type": key.type.name.lower(),
        "default": key.default,
        "values": key.valid,
        "importance": key.importance.lower(),
    }
