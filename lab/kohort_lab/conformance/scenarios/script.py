"""
Scripts: one file of TOML each.

    about = "The behaviour that the script shows"
    topics = { orders = 2 }                      # created before the script begins: name and partitions
    versions = { JoinGroup = "4-9" }             # optional: run in these versions only; default: all
    alone = true                                 # optional: no other scenario at the same time, because it changes shared state
    brokers = ["default", "tv1"]                 # optional: run on each of these brokers, see `library.BROKERS`

    [[case]]                                     # optional: one run per case, with these values as $names
    name = "empty"
    group = ""

    [1]                                          # steps, numbered in their order
    on = "a"                                     # the connection, opened at its first use; default "main"
    send = "JoinGroup"                           # the API; every key that is no keyword is a field of the request
    group_id = "@billing"                        # a name of this scenario alone
    keep = { m1 = "member_id" }                  # this field of the answer is $m1 in later steps, on each side its own value

`STEP_KEYWORDS` lists the keywords. A field that a step leaves out has its value from defaults.toml, else the protocol's
default.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from kohort.model.errors import ConfigError
from kohort.wire.apis import ApiKey

APIS: dict[str, ApiKey] = {api.api_name: api for api in ApiKey}

STEP_KEYWORDS = {
    "on": "the connection",
    "send": "the API to ask",
    "version": "the version of the request, instead of the scenario's",
    "keep": "fields of the answer to keep, by name",
    "parked": "true: continue without the answer",
    "unanswered": "true: the broker sends no answer (acks=0)",
    "wait_ms": "timeout of the answer; default 20 s",
    "again_while": "repeat the request while a field of the answer, by path, has one of these values",
    "receive": "steps whose answers are awaited now",
    "in_order": "true: the order of arrival is part of the outcome",
    "pause_ms": "time to wait",
    "close": "true: this side closes the connection",
    "restart": "true: restart the broker",
    "frame": "a whole frame in hex, including its size",
    "body": "the body of the request in hex, after a valid header",
    "cut_bytes": "number of bytes cut off at the end of the frame",
    "add_bytes": "bytes in hex appended to the frame",
    "client_id": "the client id of this request",
    "ignore": "fields of the answer that are not compared",
    "note": "a comment",
}

WAIT_MS = 20_000
CLIENT_ID = "kc"
DEFAULT_BROKER = "default"
MAIN = "main"


class ScriptError(ConfigError):
    """An invalid script."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step; the attributes are `STEP_KEYWORDS`, the request's fields are in `fields`."""

    label: str
    on: str = MAIN
    send: str | None = None
    version: int | None = None
    keep: dict[str, str] = {}
    parked: bool = False
    unanswered: bool = False
    wait_ms: int = WAIT_MS
    again_while: dict[str, list[Any]] = {}
    receive: tuple[str, ...] = ()
    in_order: bool = False
    pause_ms: int = 0
    close: bool = False
    restart: bool = False
    frame: str | None = None
    body: str | None = None
    cut_bytes: int = 0
    add_bytes: str = ""
    client_id: str | None = CLIENT_ID
    ignore: tuple[str, ...] = ()
    note: str = ""
    fields: dict[str, Any] = {}

    @property
    def api(self) -> ApiKey | None:
        return None if self.send is None else APIS[self.send]


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """
    The content of a file.

    Attributes:
        topics: partitions by name.
        versions: oldest and newest version by API, if the script limits them.
        newest_only: whether there is one scenario only, with the newest version of each API.
        alone: whether no other scenario runs at the same time. Such a script changes shared state, and restores it at its end,
            or disturbs others.
        brokers: the script runs on each of these brokers.
        cases: values by name; one empty case by default.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    topics: dict[str, int] = {}
    versions: dict[str, tuple[int, int]] = {}
    newest_only: bool = False
    alone: bool = False
    brokers: tuple[str, ...] = (DEFAULT_BROKER,)
    cases: tuple[dict[str, Any], ...] = ({},)


def read_scripts(directory: Path) -> list[Script]:
    """
    All scripts of a directory, by name.

    Raises:
        ScriptError: a script is invalid, or there is none.
    """
    defaults = _load(directory / "defaults.toml")
    paths = sorted(path for path in directory.glob("*.toml") if path.name != "defaults.toml")
    if not paths:
        raise ScriptError(f"there are no scripts in {directory}")
    return [parse_script(path.stem, _load(path), defaults) for path in paths]


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as exc:
        raise ScriptError(f"{path} cannot be read: {exc.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise ScriptError(f"{path} is no TOML: {exc}") from None


def parse_script(name: str, content: Mapping[str, Any], defaults: Mapping[str, Any]) -> Script:
    """
    A script from the content of its file.

    Raises:
        ScriptError: the content is invalid.
    """
    head = {key: value for key, value in content.items() if not key.isdigit()}
    unknown = head.keys() - {"about", "topics", "versions", "newest_only", "alone", "brokers", "case", "defaults"}
    if unknown or not head.get("about"):
        raise ScriptError(f"{name}: {'unknown: ' + ', '.join(sorted(unknown)) if unknown else 'it says nothing about'}")
    own_defaults = {
        **defaults,
        **{api: {**defaults.get(api, {}), **more} for api, more in head.get("defaults", {}).items()},
    }
    steps = tuple(_step(name, key, value, own_defaults) for key, value in content.items() if key.isdigit())
    _check_order(name, steps)
    return Script(
        name=name,
        about=head["about"],
        steps=steps,
        topics=head.get("topics", {}),
        versions={api: _range(name, api, text) for api, text in head.get("versions", {}).items()},
        newest_only=head.get("newest_only", False),
        alone=head.get("alone", False),
        brokers=tuple(head.get("brokers", (DEFAULT_BROKER,))),
        cases=tuple(head.get("case", ({},))),
    )


def _step(script: str, label: str, content: Mapping[str, Any], defaults: Mapping[str, Any]) -> Step:
    keywords = {key: value for key, value in content.items() if key in STEP_KEYWORDS}
    api = keywords.get("send")
    if api is not None and api not in APIS:
        raise ScriptError(f"{script}, step {label}: there is no API called {api}")
    fields = {key: value for key, value in content.items() if key not in STEP_KEYWORDS}
    if fields and api is None:
        raise ScriptError(f"{script}, step {label}: fields without an API: {', '.join(fields)}")
    keywords["receive"] = [str(each) for each in keywords.get("receive", ())]
    try:
        return msgspec.convert(
            {**keywords, "label": label, "fields": {**defaults.get(api, {}), **fields} if api else {}}, Step
        )
    except msgspec.ValidationError as exc:
        raise ScriptError(f"{script}, step {label}: {exc}") from None


def _check_order(name: str, steps: tuple[Step, ...]) -> None:
    labels = [step.label for step in steps]
    if not labels or labels != sorted(labels, key=int):
        raise ScriptError(f"{name}: its steps are not numbered upwards")
    for step in steps:
        later = [each for each in step.receive if each not in labels or int(each) >= int(step.label)]
        if later:
            raise ScriptError(f"{name}, step {step.label}: awaits {', '.join(later)}, which did not happen before")


def _range(name: str, api: str, text: str | int) -> tuple[int, int]:
    oldest, _, newest = str(text).partition("-")
    try:
        found = int(oldest), int(newest or oldest)
    except ValueError:
        raise ScriptError(f"{name}: {api} in versions {text!r}") from None
    known = APIS.get(api)
    if known is None or not known.oldest <= found[0] <= found[1] <= known.newest:
        raise ScriptError(f"{name}: {api} has no versions {text}")
    return found


def step_apis(steps: tuple[Step, ...]) -> Iterator[ApiKey]:
    """The APIs of steps without a version of their own."""
    for step in steps:
        if step.api is not None and step.version is None:
            yield step.api
