"""
Client quotas as the catalog stores them, and which quota applies to a client: the most specific one of its user and client id.

The entity of a quota is a user, a client id, both, or an address; each may be the default one. The order: user and client id,
user and default client id, user; default user and client id, default user and default client id, default user; client id,
default client id.

Source: KIP-13, KIP-55, KIP-612; Kafka ClientQuotaEntity, QuotaConfig, ClientQuotaManager.DefaultQuotaCallback.
"""

import math
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final, TypeAlias

from kohort.broker.catalog.view import Setting
from kohort.model.numbers import double_text, parse_double

QUOTAS: Final = "quota"
"""The kind of the settings."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

Entity: TypeAlias = Mapping[str, str | None]
"""The names by type; None is the default entity of the type."""

_ANY: Final = ""
"""The name of a user or client id in limits that do not depend on it. No entity has an empty name."""

Owner: TypeAlias = tuple[str, str]
"""The user and the client id that share a rate; "" if it does not depend on one of them."""


def entity_name(entity: Entity) -> str:
    """The name of the setting of an entity."""
    from json import dumps  # imported late, as below: a start without quotas does without it

    return dumps([[kind, entity[kind]] for kind in ENTITY_TYPES if kind in entity], ensure_ascii=False)


def parse_entity(name: str) -> dict[str, str | None]:
    """The entity of a setting."""
    from json import loads

    return dict(loads(name))


def quota_setting(entity: Entity, quotas: Mapping[str, float]) -> Setting:
    """The setting that stores all quotas of an entity, or deletes it if there is none. JSON has no infinity and no NaN."""
    fields = {key: value if math.isfinite(value) else double_text(value) for key, value in quotas.items()}
    return Setting(QUOTAS, entity_name(entity), fields or None)


def quota_values(fields: Mapping[str, float | str]) -> dict[str, float]:
    """The quotas of a setting."""
    return {key: parse_double(value) if isinstance(value, str) else float(value) for key, value in fields.items()}


class ClientLimits:
    """The limits of one key, such as `producer_byte_rate`, by user and client id."""

    def __init__(self) -> None:
        self._limits: dict[tuple[str | None, str | None], float] = {}

    def set(self, entity: Entity, limit: float | None) -> None:
        """Change the limit of one entity; None removes it."""
        parts = entity.get(USER, _ANY), entity.get(CLIENT_ID, _ANY)
        if limit is None:
            self._limits.pop(parts, None)
        else:
            self._limits[parts] = limit

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, user: str, client_id: str) -> tuple[Owner, float] | None:
        """Whose rate a client is part of, and its limit; None if there is no limit."""
        limits = self._limits
        for first in (user, None):
            for second in (client_id, None) if client_id else ():
                if (limit := limits.get((first, second))) is not None:
                    return (user, client_id), limit
            if (limit := limits.get((first, _ANY))) is not None:
                return (user, ""), limit
        for second in (client_id, None) if client_id else ():
            if (limit := limits.get((_ANY, second))) is not None:
                return ("", client_id), limit
        return None


def _address(name: str | None) -> str | None:
    """The usual text of an address; None is the default entity."""
    if name is None:
        return None
    return str(ip_address("127.0.0.1" if name == "localhost" else name))


class AddressLimits:
    """The limits of one key by address. An address that has several names has the limit that was set last."""

    def __init__(self) -> None:
        self._limits: dict[str | None, dict[str | None, float]] = {}

    def set(self, entity: Entity, limit: float | None) -> None:
        """Change the limit of one entity; None removes it."""
        name = entity[IP]
        address = _address(name)
        by_name = self._limits.setdefault(address, {})
        by_name.pop(name, None)
        if limit is not None:
            by_name[name] = limit
        elif not by_name:
            del self._limits[address]

    def __bool__(self) -> bool:
        return bool(self._limits)

    def find(self, host: str) -> float | None:
        by_name = self._limits.get(host) or self._limits.get(None)
        return next(reversed(by_name.values())) if by_name else None
