"""
Generates what the documents say of the control API: docs/control-api.json (OpenAPI 3.1) from its operations, and docs/faults.md
from the schemas of messages.

    .venv/bin/python tools/control_api.py

`--check` writes nothing and fails if a page is not up to date; the test suite does the same.
"""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path

from kohort.broker.configs.definitions import BrokerConfig
from kohort.control.kit import Kit
from kohort.control.operations.every import operations_of
from kohort.control.requests.answers import reads
from kohort.control.requests.filters import OF_ELEMENTS
from kohort.control.web.openapi import text
from kohort.server.node import Node
from kohort.server.requests.places import Place, place_of
from kohort.server.settings import Settings
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey, short_name, versions_in
from kohort.wire.schema import message

ROOT = Path(__file__).resolve().parent.parent
API = ROOT / "docs/control-api.json"
PAGE = ROOT / "docs/faults.md"
_RECORDS = (ApiKey.FETCH, ApiKey.SHARE_FETCH)

_LEVELS = {
    "partition": "partition",
    "topic": "topic",
    "topic_id": "topic",
    "group": "group",
    "transactional_id": "transactional id",
    "member": "member",
    "key": "group or transactional id",
    "resource": "resource",
    "producer_id": "producer",
}
"""What a place is called, by the first of these words that it has."""
HEAD = """\
# Faults, API by API

What a fault of the [testing kit](testing.md) does to the requests of each API. The page is generated from the schemas of
Kafka's messages (`tools/control_api.py`); the test suite tries each effect with the oldest and the newest version of each API
over raw frames.
[control-api.json](control-api.json) describes the requests to the control port.

Every API takes these effects: `error`, `answer`, `delay`, `silence`, `disconnect`, `truncate`, `slow`, `throttle`, `black_hole`
and `observe`, and every API can be held. `corrupt` needs records: {records}.

- **An error** is where the API reports it. Codes of topics and partitions (`NOT_LEADER_OR_FOLLOWER`), and codes of faults that
  name a topic or a partition, are at the last place of the column; all others at the first. `place` chooses otherwise. An
  answer without elements has no place for the code of an element: the request is served.
- **The rest of a request is served.** One partition of ten is refused, and nine are written. The refused ones have no effect,
  unless `after` is true.
- **A request that reads** is answered at once: a Fetch does not wait for records. Its other partitions have their records.
  Partitions of a fetch session, and a Metadata request for all topics, match as if the request named them. An OffsetFetch for
  all partitions of a group matches no topic.
- **A producer with acks=0** waits for no answer. An error closes its connection, as Kafka does; it does not see a delay,
  silence or truncation.
- **A throttled client** is told so where the answer has `throttle_time_ms`. The broker reads no request of its connection for
  the time.
- **Requests of a login** on a listener with SASL (ApiVersions, SaslHandshake, SaslAuthenticate) take the same effects, before
  the login and when the user of a session is authenticated again. Before the login they have no `principal`. A
  SaslHandshake or SaslAuthenticate that a fault answers itself has not happened, so the login has failed: its connection ends
  after the answer. A token behind a SaslHandshake of version 0 is no request and meets no fault. The bounds of unfinished
  logins and `connections.max.idle.ms` end a login that is held or silent.
- **A black hole** keeps the requests that come while it is there. A connection with a request in flight that matches hears
  nothing at all, also no answers to that; a filter on groups, topics or other contents keeps later requests only.
- **With a fault, hold or journal** on its API a connection has one request in flight: a delayed answer delays the later ones.

| API | versions | places of an error | filters that its requests carry | reads | throttle is told |
|---|---|---|---|---|---|
"""


def _level(words: dict[str, str]) -> str:
    for word in (
        "partition",
        "topic",
        "topic_id",
        "group",
        "transactional_id",
        "member",
        "key",
        "resource",
        "producer_id",
    ):
        if word in words:
            return {"topic_id": "topic", "key": "group or transactional id", "producer_id": "producer"}.get(
                word, word.replace("_", " ")
            )
    return "element"


def _places(place: Place, level: str) -> Iterator[str]:
    if place.code:
        yield level
    for child in place.children:
        yield from _places(child.place, _level(dict(child.place.words)))


def _words(place: Place) -> Iterator[str]:
    for word, _ in place.words:
        yield from ("group", "transactional_id") if word == "key" else (word,)
    for child in place.children:
        yield from _words(child.place)


def _row(api: ApiKey, oldest: int, newest: int) -> str:
    places: dict[str, None] = {}
    words: set[str] = set()
    for version in range(oldest, newest + 1):
        place = place_of(api, version)
        places.update(dict.fromkeys(_places(place, "request")))
        words.update(_words(place))
    if api is ApiKey.PRODUCE:  # It is in the batches.
        words.add("producer_id")
    if "topic_id" in words:
        words.add("topic")
    ranks = [
        "request",
        "producer",
        "group or transactional id",
        "group",
        "transactional id",
        "resource",
        "element",
        "topic",
    ]
    ordered = sorted(places, key=lambda each: ranks.index(each) if each in ranks else len(ranks))
    carried = ", ".join(word for word in OF_ELEMENTS if word in words) or "-"
    is_told = any(
        field.name == "throttle_time_ms"
        for field in message(f"{api.api_name}Response").structs[f"{api.api_name}Response"]
    )
    versions = str(oldest) if oldest == newest else f"{oldest} to {newest}"
    return (
        f"| {api.api_name} | {versions} | {', '.join(ordered)} | {carried} | {'yes' if reads(api) else ''} "
        f"| {'yes' if is_told else ''} |\n"
    )


def page() -> str:
    """docs/faults.md."""
    rows = (
        _row(api, versions.oldest, versions.newest_stable) for api, versions in versions_in(DEFAULT_RELEASE).items()
    )
    tail = (
        f"\nVersions are those of Apache Kafka {short_name(DEFAULT_RELEASE)}. Every request carries `client_id`, `connection`, "
        "`listener`, `broker`,\n`principal`, and its version (`min_version`, `max_version`).\n"
    )
    return HEAD.format(records=" and ".join(api.api_name for api in _RECORDS)) + "".join(rows) + tail


def document() -> bytes:
    """docs/control-api.json."""

    async def made() -> bytes:
        node = Node(Settings(port=0, config=BrokerConfig({})), asyncio.get_running_loop())
        try:
            return text(operations_of(Kit(node, asyncio.get_running_loop())))
        finally:
            await node.stop()

    return asyncio.run(made())


def main() -> int:
    pages = {API: document(), PAGE: page().encode()}
    if "--check" in sys.argv:
        old = [path for path, content in pages.items() if not path.exists() or path.read_bytes() != content]
        for path in old:
            print(f"{path.relative_to(ROOT)} is not up to date: run tools/control_api.py")
        return 1 if old else 0
    for path, content in pages.items():
        path.write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
