"""
Scripts: one story a file, in TOML.

    about = "What the story shows"
    topics = { orders = 2 }                      # made before the story begins: name and partitions
    versions = { JoinGroup = "4-9" }             # which versions the story is told in; all of them if nothing is said
    alone = true                                 # optional: told when no other is, for it changes what others see

    [[case]]                                     # optional: the story is told once per case, with these values as $names
    name = "empty"
    group = ""

    [1]                                          # steps, numbered in the order in which they happen
    on = "a"                                     # the connection, "main" if nothing is said; it opens at its first use
    send = "JoinGroup"                           # the API; all that follows and is no keyword is a field of the request
    group_id = "@billing"                        # a name of this story alone
    keep = { m1 = "member_id" }                  # the answer's field is $m1 from here on, on each side its own

`STEP_KEYWORDS` lists the keywords. What a script leaves out of a request is what defaults.toml says, then the protocol's
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
    "version": "the version to ask in, whatever the story is told in",
    "keep": "fields of the answer by the name that they get",
    "parked": "true: go on while the answer is outstanding",
    "unanswered": "true: no answer is owed (acks=0)",
    "wait_ms": "for how long an answer is waited for, 20 s if nothing is said",
    "receive": "the steps whose answers are awaited now",
    "in_order": "true: the order in which they come is part of the outcome",
    "pause_ms": "time that passes",
    "close": "true: this side closes the connection",
    "restart": "true: the broker is stopped and started again",
    "frame": "a whole frame in hex, its size included",
    "body": "the body of the request in hex, behind a right header",
    "cut_bytes": "how many bytes are missing at the end of the frame",
    "add_bytes": "hex that is added to the end of the frame",
    "client_id": "the client id of this request",
    "ignore": "fields of the answer that are left to chance",
    "note": "what there is to know about this step",
}

WAIT_MS = 20_000
CLIENT_ID = "kc"
MAIN = "main"


class ScriptError(ConfigError):
    """A script that says what cannot be told."""


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
    A file, read.

    Attributes:
        topics: partitions by name.
        versions: oldest and newest version by API, where the script says so.
        newest_only: the story is told once, in the newest version of everything.
        alone: the story changes what others see, and takes it back at its end: it is told when no other is.
        cases: values by name; one empty case where there are none.
    """

    name: str
    about: str
    steps: tuple[Step, ...]
    topics: dict[str, int] = {}
    versions: dict[str, tuple[int, int]] = {}
    newest_only: bool = False
    alone: bool = False
    cases: tuple[dict[str, Any], ...] = ({},)


def read_scripts(directory: Path) -> list[Script]:
    """
    All scripts of a directory, by name.

    Raises:
        ScriptError: one of them is wrong, or there is none.
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
    A script from what its file holds.

    Raises:
        ScriptError: what it says cannot be told.
    """
    head = {key: value for key, value in content.items() if not key.isdigit()}
    unknown = head.keys() - {"about", "topics", "versions", "newest_only", "alone", "case", "defaults"}
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
    """The APIs whose version a story is free to choose."""
    for step in steps:
        if step.api is not None and step.version is None:
            yield step.api
