"""
Generates the schemas of Kafka's messages from the JSON definitions in Apache Kafka's jars:

- `src/kohort/wire/schemas.json`: every message of every API of a broker, as of the newest release, one schema per message (the
  union of all versions), with the versions of each field.
- `src/kohort/wire/releases.json`: the versions of every API in each release.

To refresh both after a new release of Apache Kafka is added to `RELEASES` (Java and Maven are needed for its jars):

    .venv/bin/python tools/kafka_schemas.py
    .venv/bin/python tools/message_stubs.py

`--check` writes nothing and fails if a file is not up to date; the test suite does the same. The tool fails if a version of an
older release has other fields in the newest, by whose schemas it is read. It fails, too, if `src/kohort/records/schemas.json`,
which is written by hand, differs from the definitions of coordinator records in the newest release.
"""

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from kohort.records.schema import record_types, struct_owners
from kohort.testing.kafka import kafka_jars
from kohort.wire import schema

ROOT = Path(__file__).resolve().parent.parent
SCHEMAS = ROOT / "src/kohort/wire/schemas.json"
VERSIONS = ROOT / "src/kohort/wire/releases.json"

RELEASES: Final = ("4.2.1", "4.4.0")
"""The releases that a broker can be like, oldest first."""

COORDINATORS: Final = ("group-coordinator", "transaction-coordinator", "share-coordinator")
"""The parts of Kafka that define coordinator records."""

Definition = dict[str, Any]
"""One of Kafka's JSON definitions, or a field in one."""

ALL: Final = (0, 0x7FFF)

NO_DEFAULT: Final = {"string": "", "bool": False, "bytes": "", "records": None, "uuid": None, "float64": 0.0}
"""By type, what a field without a stated default has; any other type has 0."""

_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_WORDS = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+")


class Field(msgspec.Struct, omit_defaults=True):
    """One field of the union; mirrors `kohort.wire.schema.Field`."""

    name: str
    type: str
    versions: list[int]
    array: bool = False
    nullable: list[int] | None = None
    tag: int | None = None
    default: Any = 0
    json_name: str | None = None


class Row(msgspec.Struct, omit_defaults=True):
    """One API; mirrors `kohort.wire.apis`."""

    name: str
    flexible: int
    releases: dict[str, tuple[int, int, int]] = msgspec.field(default_factory=dict)
    is_between_nodes: bool = False


@cache
def definitions(release: str, part: str = "clients") -> dict[str, Definition]:
    """The definitions in the jar of a part of Kafka, by name."""
    with zipfile.ZipFile(kafka_jars(release=release) / f"kafka-{part}-{release}.jar") as jar:
        names = [name for name in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", name)]
        texts = [jar.read(name).decode() for name in names]
    found = [json.loads(_COMMENT.sub(lambda match: match[1] or "", text)) for text in texts]
    return {definition["name"]: definition for definition in found}


def range_of(text: str | None, within: tuple[int, int]) -> range:
    """Kafka's notation of versions: `3+`, `0-2`, `1`, `none`."""
    if text is None or text == "none":
        return range(0)
    low, _, high = text.removesuffix("+").partition("-")
    last = within[1] if text.endswith("+") else int(high or low)
    return range(max(int(low), within[0]), min(last, within[1]) + 1)


BETWEEN_NODES: Final = ("EnvelopeRequest", "AllocateProducerIdsRequest")
"""Requests of brokers to their controller, which no client sends."""


def apis(found: Mapping[str, Definition]) -> list[Definition]:
    """The requests that a broker serves, by key."""
    requests = (
        definition
        for definition in found.values()
        if definition["type"] == "request"
        if "broker" in definition.get("listeners", ()) or definition["name"] in BETWEEN_NODES
        if definition["validVersions"] != "none"
    )
    return sorted(requests, key=lambda definition: int(definition["apiKey"]))


class Message:
    """One message over its versions: Kafka's structs by their names, each field with the versions in which it can be there."""

    def __init__(self, definition: Definition, api_key: int) -> None:
        self.name: str = definition["name"]
        self.api_key = api_key
        versions = range_of(definition["validVersions"], ALL)
        self.versions = [versions[0], versions[-1]]
        flexible = range_of(definition["flexibleVersions"], (versions[0], versions[-1]))
        self.flexible = flexible[0] if flexible else -1
        self.structs: dict[str, list[Field]] = {}
        self._common = {struct["name"]: struct["fields"] for struct in definition.get("commonStructs", ())}
        for version in versions:
            self._add(self.name, definition["fields"], version)

    def _add(self, struct: str, definitions: list[Definition], version: int) -> None:
        """Add a version to the fields of a struct that it has, and to those of the structs in them."""
        known = {field.name: field for field in self.structs.get(struct, ())}
        for definition in definitions:
            if version not in range_of(
                definition.get("versions", definition.get("taggedVersions")), (version, version)
            ):
                continue
            field = known.setdefault(snake_case(definition["name"]), self._field(definition, version))
            assert field.versions[1] in (version - 1, version), (self.name, field.name, "versions with a gap")
            field.versions[1] = version
            if version in range_of(definition.get("nullableVersions"), (version, version)):
                field.nullable = [field.nullable[0] if field.nullable else version, version]
            tagged = range_of(definition.get("taggedVersions"), (version, version))
            assert (version in tagged) == (field.tag is not None), (self.name, field.name, "a tag in some versions")
            nested = definition.get("fields") or self._common.get(definition["type"].removeprefix("[]"))
            if nested:
                self._add(field.type, nested, version)
        order = [snake_case(definition["name"]) for definition in definitions]
        self.structs[struct] = sorted(known.values(), key=lambda field: order.index(field.name))

    def _field(self, definition: Definition, version: int) -> Field:
        return Field(
            name=snake_case(definition["name"]),
            type=definition["type"].removeprefix("[]"),
            versions=[version, version],
            array=definition["type"].startswith("[]"),
            tag=definition.get("tag"),
            default=default_of(definition),
        )

    def nested(self) -> list[str]:
        return [name for name in self.structs if name != self.name]

    def renamed(self, names: Mapping[tuple[str, str], str]) -> dict[str, list[Field]]:
        """The structs under their unique names, nested ones before those that hold them."""
        ordered: dict[str, list[Field]] = {}

        def visit(struct: str) -> None:
            for field in self.structs[struct]:
                if field.type in self.structs:
                    visit(field.type)
                    field.type = names[self.name, field.type]
            ordered[names.get((self.name, struct), struct)] = self.structs[struct]

        visit(self.name)
        return ordered


def snake_case(name: str) -> str:
    return "_".join(word.lower() for word in _WORDS.findall(name))


def default_of(definition: Definition) -> Any:
    """The default as JSON: null, a number, a string, a boolean, [] for no elements, {} for a struct of defaults."""
    kafka_type, default = definition["type"], definition.get("default")
    if default == "null":
        return None
    if kafka_type.startswith("[]"):
        return []
    if kafka_type[0].isupper():
        return {}
    if default is None or kafka_type == "string":
        return NO_DEFAULT.get(kafka_type, 0) if default is None else default
    if kafka_type == "bool":
        return default in (True, "true")
    assert kafka_type.startswith(("int", "uint")), definition
    return int(str(default), 0)


def layout(message: Message | schema.Message, version: int, *, has_names: bool = False) -> Any:
    """
    What a version has on the wire: types and tags.

    Args:
        has_names: compare names, and defaults of tagged fields, too. In requests they change without a new version.
    """

    def default_form(field: Field | schema.Field) -> Any:
        return {} if isinstance(field.default, dict) else field.default

    def fields(struct: str) -> list[Any]:
        present = [field for field in message.structs[struct] if field.versions[0] <= version <= field.versions[1]]
        present.sort(key=lambda field: -1 if field.tag is None else field.tag)
        return [
            (
                fields(field.type) if field.type in message.structs else field.type,
                field.array,
                field.tag,
                field.nullable is not None and field.nullable[0] <= version <= field.nullable[1],
                has_names
                and (snake_case(field.json_name or field.name), field.tag is not None and default_form(field)),
            )
            for field in present
        ]

    return 0 <= message.flexible <= version, fields(message.name)


def nested_names(messages: Iterable[Message]) -> dict[tuple[str, str], str]:
    """
    A unique name for each nested struct, by (message, Kafka's name): Kafka's own if it begins with the message's name, or with
    its API's name and no other message's struct is called so; else the message's name in front.
    """
    candidates: dict[str, list[str]] = {}
    for message in messages:
        for nested in message.nested():
            candidates.setdefault(nested, []).append(message.name)
    names = {}
    for message in messages:
        base = re.sub("(Request|Response)$", "", message.name)
        for nested in message.nested():
            is_own = nested.startswith(message.name)
            is_unique = nested.startswith(base) and len(candidates[nested]) == 1
            names[message.name, nested] = nested if is_own or is_unique else f"{message.name}{nested}"
    assert len(set(names.values())) == len(names)
    return names


def messages_of(release: str) -> list[Message]:
    """The requests and responses of a broker's APIs, by key."""
    found = definitions(release)
    return [
        Message(found[f"{api['name'].removesuffix('Request')}{kind}"], api["apiKey"])
        for api in apis(found)
        for kind in ("Request", "Response")
    ]


def schemas_json(messages: list[Message]) -> bytes:
    """One line per message, so that a difference can be read."""
    names = nested_names(messages)
    lines = []
    for message in messages:
        body = {
            "api_key": message.api_key,
            "versions": message.versions,
            "flexible": message.flexible,
            "structs": message.renamed(names),
        }
        lines.append(b'"%s":%s' % (message.name.encode(), msgspec.json.encode(body)))
    return _lines(lines)


def releases_json() -> bytes:
    """One line per API, by key; the versions of a release are its oldest, newest and newest stable one."""
    rows: dict[int, Row] = {}
    for release in RELEASES:
        for api in apis(definitions(release)):
            versions = range_of(api["validVersions"], ALL)
            flexible = range_of(api["flexibleVersions"], ALL)
            row = rows.setdefault(api["apiKey"], Row(name=api["name"].removesuffix("Request"), flexible=-1))
            row.is_between_nodes = api["name"] in BETWEEN_NODES
            row.flexible = flexible[0] if flexible else -1
            stable = versions[-1] - (api.get("latestVersionUnstable") is True)
            row.releases[release] = (versions[0], versions[-1], stable)
    return _lines(b'"%d":%s' % (key, msgspec.json.encode(row)) for key, row in sorted(rows.items()))


def check(release: str, newest: Mapping[str, Message]) -> None:
    """
    Compare an older release with the newest one, by whose schemas it is read.

    Raises:
        ValueError: a version has other fields on the wire.
    """
    for message in messages_of(release):
        for version in range(message.versions[0], message.versions[1] + 1):
            if layout(message, version) != layout(newest[message.name], version):
                raise ValueError(
                    f"{message.name} {version} of Apache Kafka {release} has other fields in {RELEASES[-1]}"
                )


def check_records(release: str) -> None:
    """
    Compare the schemas of coordinator records with the definitions of a release.

    Raises:
        ValueError: they differ.
    """
    found = {name: one for part in COORDINATORS for name, one in definitions(release, part).items()}
    if missing := {name.removesuffix("Value") for name in found if name.endswith("Value")} - struct_owners().keys():
        raise ValueError(f"records/schemas.json lacks {', '.join(sorted(missing))} of Apache Kafka {release}")
    for record_type in record_types().values():
        for kind, ours in ("Key", record_type.key_message), ("Value", record_type.value_message):
            theirs = Message(found[f"{record_type.name}{kind}"], -1)
            if list(ours.versions) != theirs.versions or any(
                layout(ours, version, has_names=True) != layout(theirs, version, has_names=True)
                for version in range(theirs.versions[0], theirs.versions[1] + 1)
            ):
                raise ValueError(f"records/schemas.json has another {theirs.name} than Apache Kafka {release}")


def generate() -> dict[Path, bytes]:
    """What the two files should hold."""
    newest = messages_of(RELEASES[-1])
    for release in RELEASES[:-1]:
        check(release, {message.name: message for message in newest})
    check_records(RELEASES[-1])
    return {SCHEMAS: schemas_json(newest), VERSIONS: releases_json()}


def main() -> None:
    generated = generate()
    stale = [path for path, content in generated.items() if not path.exists() or path.read_bytes() != content]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is not up to date: run tools/kafka_schemas.py")
        sys.exit(1 if stale else 0)
    for path, content in generated.items():
        path.write_bytes(content)
        print(f"{path.relative_to(ROOT)}: {len(content)} bytes")


def _lines(lines: Iterable[bytes]) -> bytes:
    return b"{\n" + b",\n".join(lines) + b"\n}\n"


if __name__ == "__main__":
    main()
