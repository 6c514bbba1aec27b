"""Types and names of resources that have configurations. Source: Kafka ConfigResource."""

import re
from typing import Final, Protocol

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32

_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS_MAX: Final = 20
_INT32: Final = 1 << 31


class NamedResource(Protocol):
    """A resource of a request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


def node_id_of(name: str) -> int | None:
    """The node id that a name says; None if the name is not a 32-bit integer. Source: Java Integer.parseInt."""
    if len(name) > _DIGITS_MAX or not _INTEGER.fullmatch(name):
        return None
    number = int(name)
    return number if -_INT32 <= number < _INT32 else None


def canonical(resource: NamedResource) -> str:
    """The name of a resource, the same for all spellings of it: 1 and 01 are one broker."""
    name = resource.resource_name
    node_id = node_id_of(name) if resource.resource_type in (BROKER, BROKER_LOGGER) else None
    return name if node_id is None else str(node_id)
