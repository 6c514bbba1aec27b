"""
Rules for topic names.

Source: Kafka org.apache.kafka.common.internals.Topic.
"""

import re
from collections.abc import Iterable

from kohort.broker.catalog.catalog import CATALOG

CLUSTER_METADATA = "__cluster_metadata"
"""The topic of Kafka's metadata log. Clients can create neither this topic nor the catalog's."""
RESERVED_NAMES = frozenset({CLUSTER_METADATA, CATALOG.topic})

NAME_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def name_error(name: str) -> str | None:
    """The error message for an invalid topic name; None if the name is valid."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > NAME_LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def colliding(name: str, existing: Iterable[str]) -> str | None:
    """A topic whose metrics would have the same names, because metrics write `.` as `_`; None if there is none."""
    if "." not in name and "_" not in name:
        return None
    unified = name.replace(".", "_")
    return next((other for other in existing if other.replace(".", "_") == unified), None)
