"""
Features of the cluster (KIP-584): what is supported, and the finalised levels, by which clients choose their protocol.

A feature is supported if the APIs that it stands for are served. Its finalised level is the newest one unless the operator asks
for another at the start. Level 0 turns a feature off; clients are not told of it.

Source: KIP-584, KIP-890, KIP-1022; Kafka FeatureVersion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from kohort.broker.ports import Handler
from kohort.broker.served_versions import served_versions
from kohort.model.errors import ConfigError
from kohort.wire.apis import ApiKey

GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"


class Feature(msgspec.Struct, frozen=True):
    """A feature with levels from 0 to `newest`. It is supported if `api` is served in this version."""

    name: str
    newest: int
    api: ApiKey
    api_version: int


FEATURES: Final = (
    Feature(GROUP_VERSION, 1, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0),
    Feature(TRANSACTION_VERSION, 2, ApiKey.END_TXN, 5),
    Feature("share.version", 1, ApiKey.SHARE_GROUP_HEARTBEAT, 1),
    Feature("streams.version", 1, ApiKey.STREAMS_GROUP_HEARTBEAT, 0),
)


class Features:
    """
    The features of one cluster.

    Args:
        levels: the finalised levels that the operator asks for, by name.

    Raises:
        ConfigError: a feature or a level is unknown.
    """

    def __init__(self, levels: Mapping[str, int] | None = None) -> None:
        newest = {feature.name: feature.newest for feature in FEATURES}
        for name, level in (levels or {}).items():
            if name not in newest:
                raise ConfigError(f"Feature {name!r} is unknown; there are {', '.join(newest)}")
            if not 0 <= level <= newest[name]:
                raise ConfigError(f"Feature {name} has the levels 0 to {newest[name]}, not {level}")
        self._levels = {**newest, **(levels or {})}

    def level(self, name: str) -> int:
        """The finalised level of a feature."""
        return self._levels[name]

    def supported(self, handlers: Mapping[ApiKey, Handler]) -> list[Feature]:
        """The features whose APIs are among the handlers."""
        return [
            feature
            for feature in FEATURES
            if feature.api in handlers and served_versions(feature.api)[1] >= feature.api_version
        ]


def parse_features(texts: Iterable[str]) -> dict[str, int]:
    """
    Parse `NAME=LEVEL` texts.

    Raises:
        ConfigError: a text has another form.
    """
    levels = {}
    for text in texts:
        name, _, level = text.partition("=")
        if not level.isdecimal():
            raise ConfigError(f"A feature is given as NAME=LEVEL, for example {TRANSACTION_VERSION}=1; not {text!r}")
        levels[name.strip()] = int(level)
    return levels
