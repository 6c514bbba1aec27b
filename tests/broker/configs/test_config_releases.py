"""The configurations of each release are those that Kafka's classes define (record_definitions.py)."""

from typing import Any

import pytest

from kohort.broker.configs.config_table import REQUIRED
from kohort.broker.configs.definitions import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigKey,
    keys_of,
)
from kohort.wire.apis import RELEASES as SERVED
from tests.broker.configs.record_definitions import RELEASES, definitions

KINDS = ("broker", "topic", "group", "client metrics")


def test_what_can_be_configured_are_the_keys_of_all_releases() -> None:
    for number, known in enumerate((BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS)):
        oldest_first = [keys_of(release)[number] for release in SERVED]
        assert list(known) == sorted(set().union(*oldest_first))
        assert known.items() >= oldest_first[-1].items()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_key_has_kafkas_type_default_and_valid_values(release: str, kind: str) -> None:
    keys = dict(zip(KINDS, (*keys_of(release), CLIENT_METRICS_KEYS), strict=True))[kind]
    assert {name: shape(key) for name, key in keys.items()} == {
        name: [type_name, None if default == REQUIRED else default, valid or None, importance, is_internal]
        for name, (type_name, default, valid, importance, is_internal) in definitions(release)[kind].items()
    }
    assert list(keys) == sorted(keys)


def shape(key: ConfigKey) -> list[Any]:
    return [key.type.name, key.default, key.valid, key.importance, key.is_internal]


@pytest.mark.parametrize("release", RELEASES)
def test_every_default_is_valid_and_every_key_has_a_sentence(release: str) -> None:
    for keys in keys_of(release):
        for name, key in keys.items():
            assert key.default is None or key.parse(key.default) is not None, name
            assert key.documentation.endswith("."), name
            assert ". " not in key.documentation, name
