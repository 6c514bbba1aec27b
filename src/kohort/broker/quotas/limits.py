"""
Which quota applies to a client: the most specific one of its user and client id.

The order: user and client id, user and default client id, user; default user and client id, default user and default client
id, default user; client id, default client id.

Source: Kafka ClientQuotaManager.DefaultQuotaCallback.
"""

from collections.abc import Mapping
from enum import Enum
from ipaddress import ip_address
from typing import Final, TypeAlias

from kohort.broker.quotas.entities import CLIENT_ID, IP, USER, Entity


class Default(Enum):
    """The default entity of a type."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
_Part: TypeAlias = str | Default | None
Owner: TypeAlias = tuple[str, str]
"""The user and the client id that share a rate; "" if it does not depend on one of them."""


class ClientLimits:
    """The limits of one key, such as `producer_byte_rate`, by user and client id."""

    def __init__(self, key: str, quotas: Mapping[str, Mapping[str, float]], entities: Mapping[str, Entity]) -> None:
        self._limits: dict[tuple[_Part, _Part], float] = {}
        for name, values in quotas.items():
            entity = entities[name]
            if key in values and IP not in entity:
                self._limits[_part(entity, USER), _part(entity, CLIENT_ID)] = values[key]

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> tuple[Owner, float] | None:
        """Whose rate a client is part of, and its limit; None if there is no limit."""
        limits = self._limits
        for first in (user, DEFAULT):
            for second in (client_id, DEFAULT) if client_id else ():
                if (limit := limits.get((first, second))) is not None:
                    return (user, client_id), limit
            if (limit := limits.get((first, None))) is not None:
                return (user, ""), limit
        for second in (client_id, DEFAULT) if client_id else ():
            if (limit := limits.get((None, second))) is not None:
                return ("", client_id), limit
        return None


def _part(entity: Entity, kind: str) -> _Part:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT if name is None else name


def _address(name: str | None) -> str | None:
    """The usual text of an address; None is the default entity."""
    if name is None:
        return None
    return str(ip_address("127.0.0.1" if name == "localhost" else name))


class AddressLimits:
    """The limits of one key by address."""

    def __init__(self, key: str, quotas: Mapping[str, Mapping[str, float]], entities: Mapping[str, Entity]) -> None:
        self._limits = {
            _address(entities[name][IP]): values[key]
            for name, values in quotas.items()
            if key in values and IP in entities[name]
        }

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, host: str) -> float | None:
        return self._limits.get(host, self._limits.get(None))
