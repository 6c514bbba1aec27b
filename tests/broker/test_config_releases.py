"""The configurations of later releases are those of Kafka's classes (`tests/data/configuration-changes-4.4.0.json`)."""

import json
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.configs.definitions import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, keys_of
from kohort.wire.apis import SERVED_RELEASE

KINDS = ("broker", "topic", "group")
CHANGES = json.loads((Path(__file__).parents[1] / "data/configuration-changes-4.4.0.json").read_text())
BEFORE = dict(zip(KINDS, keys_of("4.2.1"), strict=True))
AFTER = dict(zip(KINDS, keys_of("4.4.0"), strict=True))


def test_what_is_served_are_the_keys_of_the_served_release() -> None:
    assert keys_of(SERVED_RELEASE) == (BROKER_KEYS, TOPIC_KEYS, GROUP_KEYS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_adds_changes_and_removes_what_kafkas_does(kind: str) -> None:
    before, after, told = BEFORE[kind], AFTER[kind], CHANGES[kind]
    assert after.keys() - before.keys() == set(told["added"])
    assert before.keys() - after.keys() == set(told["removed"])
    assert {name for name in before.keys() & after.keys() if before[name] != after[name]} == set(told["changed"])
    assert list(after) == sorted(after)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in CHANGES[kind]["added"]], ids=str)
def test_a_new_key_has_kafkas_type_default_and_valid_values(kind: str, name: str) -> None:
    key = AFTER[kind][name]
    told = CHANGES[kind]["added"][name]
    assert shape(key) == {
        **told,
        "valid": told["valid"] or None,
        "default": as_text(told),
        "internal": "internal" in told,
    }
    assert key.default is None or key.parse(key.default) is not None
    assert key.documentation.endswith(".")
    assert ". " not in key.documentation


@pytest.mark.parametrize("name", CHANGES["broker"]["changed"])
def test_a_changed_key_differs_in_nothing_else(name: str) -> None:
    before, after = shape(BEFORE["broker"][name]), shape(AFTER["broker"][name])
    changed = {part: [before[part], after[part]] for part in before if before[part] != after[part]}
    assert changed == CHANGES["broker"]["changed"][name]


def shape(key: ConfigKey) -> dict[str, Any]:
    return {
        "type": key.type.name,
        "default": key.default,
        "valid": key.valid,
        "importance": key.importance,
        "internal": key.is_internal,
    }


def as_text(told: dict[str, Any]) -> str | None:
    """The default as text; Java shows a list in brackets."""
    default: str | None = told["default"]
    return default[1:-1] if told["type"] == "LIST" and default is not None else default
