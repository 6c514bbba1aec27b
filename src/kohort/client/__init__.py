"""
A small blocking client for Kafka clusters.

`Client` talks to a cluster and finds coordinators and leaders; `Connection` talks to one broker. Both send any request of
`kohort.wire.messages` in the newest version that both sides support. Errors are raised as `kohort.model.errors`.
"""

from kohort.client.addresses import Address, parse_bootstrap
from kohort.client.cluster import Client, CoordinatorKind
from kohort.client.connection import Connection, Versions
from kohort.client.security import Security, read_properties

__all__ = [
    "Address",
    "Client",
    "Connection",
    "CoordinatorKind",
    "Security",
    "Versions",
    "parse_bootstrap",
    "read_properties",
]
