"""Which requests a fault, a hold or a search of the journal is about. A filter that a request cannot carry never matches."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from kohort.model.ids import uuid_from_text
from kohort.model.limits import CONTROL_ELEMENTS_MAX
from kohort.server.connections.in_flight import InFlightRequest
from kohort.server.requests.places import Facts
from kohort.wire.apis import ApiKey

NameOf: TypeAlias = Callable[[UUID], str | None]
"""The name of a topic by its id; None if there is no such topic."""


class Call(msgspec.Struct, frozen=True, gc=False):
    """
    One request, as filters see it.

    Attributes:
        connection: the address of the client, `HOST:PORT`.
        facts: what the request names as a whole; places have the rest.
    """

    api: ApiKey
    version: int
    client_id: str
    connection: str
    listener: str
    broker: int
    principal: str
    request: Any
    facts: Facts


def call_of(context: InFlightRequest, broker: int, request: Any = None, facts: Facts = MappingProxyType({})) -> Call:
    """A request of a connection; without its contents if they are not given."""
    return Call(
        context.route.api_key,
        context.api_version,
        context.client_id,
        f"{context.client_host.removeprefix('/')}:{context.client.port}",
        context.listener,
        broker,
        str(context.principal),
        request,
        facts,
    )


_OF_CALL: Final = ("client_id", "connection", "listener", "broker", "principal")
OF_ELEMENTS: Final = (
    "group",
    "member",
    "transactional_id",
    "producer_id",
    "resource",
    "topic",
    "topic_id",
    "partition",
)


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    Every field that is given must match.

    Attributes:
        api: Kafka's name of an API, its number, or a list of them; all APIs without it.
        min_version, max_version: of the request.
        client_id: of the request's header.
        connection: the client's address, HOST:PORT.
        listener: its name.
        broker: the id of the broker that was asked.
        principal: the user, as `User:alice`.
        topic: a name; a request that has only the id of the topic matches, too.
        topic_id: 22 characters, as Kafka prints it, or a UUID.
        member: a member id, or the instance id of a static member.
        transactional_id, producer_id: of the request.
        resource: the name of a configured resource, a user or a feature.
    """

    api: str | int | list[str | int] | None = None
    min_version: int | None = None
    max_version: int | None = None
    client_id: str | None = None
    connection: str | None = None
    listener: str | None = None
    broker: int | None = None
    principal: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    group: str | None = None
    member: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    resource: str | None = None


class Matcher:
    """
    A filter that is ready to match.

    Attributes:
        apis: the APIs; None for all.
        is_about_clients: whether a request matches whatever it has in its body.
        names_elements: whether the filter is about topics or partitions, so that a request may match in part.

    Raises:
        ValueError: an API or a topic id is unknown.
    """

    def __init__(self, given: Filter, name_of: NameOf) -> None:
        self._given = given
        self._name_of = name_of
        self.apis = _apis(given.api)
        wanted: dict[str, Any] = {}
        for word in OF_ELEMENTS:
            value = getattr(given, word)
            if value is not None:
                wanted[word] = topic_id_of(value) if word == "topic_id" else value
        self._wanted = wanted
        self.is_about_clients = not wanted
        self.names_elements = not wanted.keys().isdisjoint({"topic", "topic_id", "partition"})

    def may_match(self, call: Call) -> bool:
        """Whether the client, the connection and the version match."""
        given = self._given
        if self.apis is not None and call.api not in self.apis:
            return False
        if given.min_version is not None and call.version < given.min_version:
            return False
        if given.max_version is not None and call.version > given.max_version:
            return False
        return all(getattr(given, name) in (None, getattr(call, name)) for name in _OF_CALL)

    def matches(self, facts: Facts) -> bool | None:
        """As `kohort.server.requests.places.Matches`."""
        is_complete = True
        for word, value in self._wanted.items():
            found = facts.get(word)
            if found is None and word == "topic" and (topic_id := facts.get("topic_id")) is not None:
                found = self._name_of(topic_id)
            if found is None:
                is_complete = False
            elif found != value:
                return False
        return True if is_complete else None


def _apis(given: str | int | list[str | int] | None) -> frozenset[ApiKey] | None:
    if given is None:
        return None
    names = given if isinstance(given, list) else [given]
    if len(names) > CONTROL_ELEMENTS_MAX:
        raise ValueError(f"a filter has at most {CONTROL_ELEMENTS_MAX} APIs; it has {len(names)}")
    return frozenset([api_of(each) for each in set(names)])


def api_of(name: str | int) -> ApiKey:
    """
    An API by its name or number.

    Raises:
        ValueError: there is none.
    """
    if isinstance(name, int) or name.isdigit():
        try:
            return ApiKey(int(name))
        except ValueError:
            raise ValueError(f"there is no API with the number {name}") from None
    found = _BY_NAME.get(_plain(name))
    if found is None:
        raise ValueError(f"there is no API {name!r}{nearest(name, [api.api_name for api in ApiKey])}")
    return found


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


_BY_NAME: Final = {_plain(api.api_name): api for api in ApiKey}


def nearest(name: str, known: list[str]) -> str:
    """The end of a sentence that names the nearest known name, if one is near."""
    from difflib import get_close_matches

    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"; did you mean {by_lower[found[0]]}?" if found else ""


def topic_id_of(text: str) -> UUID:
    """
    A topic id in either form.

    Raises:
        ValueError: the text is none.
    """
    try:
        return UUID(text) if len(text) in (32, 36) else uuid_from_text(text)
    except ValueError:
        raise ValueError(f"{text!r} is no topic id: give the 22 characters that Kafka prints, or a UUID") from None
