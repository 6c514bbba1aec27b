"""Types and names of resources that have configurations. Source: Kafka ConfigResource."""

from typing import Final, Protocol

from kohort.model.numbers import parse_integer

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32


class NamedResource(Protocol):
    """A resource of a request."""

    @property
    def resource_type(self) -> int: ...

    @property
    def resource_name(self) -> str: ...


def node_id_of(name: str) -> int | None:
    """The node id that a name says; None if the name is not a 32-bit integer. Source: Java Integer.parseInt."""
    try:
        return parse_integer(name, 32)
    except ValueError:
        return None


def canonical(resource: NamedResource) -> str:
    """The name of a resource, the same for all spellings of it: 1 and 01 are one broker."""
    name = resource.resource_name
    node_id = node_id_of(name) if resource.resource_type in (BROKER, BROKER_LOGGER) else None
    return name if node_id is None else str(node_id)
