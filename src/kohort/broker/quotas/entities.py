"""
Entities of client quotas, as the catalog stores them: a user, a client id, both, or an address; each may be the default one.

Source: KIP-13, KIP-55, KIP-612; Kafka ClientQuotaEntity, QuotaConfig.
"""

import json
import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from kohort.broker.catalog_view import Setting
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


def entity_name(entity: Entity) -> str:
    """The name of the setting of an entity."""
    return json.dumps([[kind, entity[kind]] for kind in ENTITY_TYPES if kind in entity], ensure_ascii=False)


def parse_entity(name: str) -> dict[str, str | None]:
    """The entity of a setting."""
    return dict(json.loads(name))


def quota_setting(entity: Entity, quotas: Mapping[str, float]) -> Setting:
    """The setting that stores all quotas of an entity, or deletes it if there is none. JSON has no infinity and no NaN."""
    fields = {key: value if math.isfinite(value) else double_text(value) for key, value in quotas.items()}
    return Setting(QUOTAS, entity_name(entity), fields or None)


def quota_values(fields: Mapping[str, float | str]) -> dict[str, float]:
    """The quotas of a setting."""
    return {key: parse_double(value) if isinstance(value, str) else float(value) for key, value in fields.items()}
