"""SCRAM credentials: what is refused, as Apache Kafka refuses it, and what bounds their size."""

from typing import Any

import pytest

from kohort.broker.catalog.catalog import Catalog
from kohort.broker.catalog.view import SCRAM, CatalogChange, Setting
from kohort.model.errors import ErrorCode
from kohort.model.limits import SCRAM_NAME_LENGTH_MAX, SCRAM_SALT_BYTES_MAX, SCRAM_STORED_BYTES_MAX
from kohort.storage.memory import MemoryStore
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness

UNACCEPTABLE = ErrorCode.UNACCEPTABLE_CREDENTIAL
LONGEST = "ü" * SCRAM_NAME_LENGTH_MAX
SALT = bytes(range(256)) * (SCRAM_SALT_BYTES_MAX // 256)


def alter(harness: Harness, **fields: Any) -> tuple[int, str | None]:
    usual: dict[str, Any] = {
        "name": "a",
        "mechanism": 1,
        "iterations": 4_096,
        "salt": b"s",
        "salted_password": bytes(32),
    }
    upsertion = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(**usual | fields)
    request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
    (result,) = harness.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request).results
    return result.error_code, result.error_message


# fmt: off
ANSWERS: list[tuple[dict[str, Any], tuple[int, str | None]]] = [
    ({}, (0, None)),
    ({"iterations": 16_384}, (0, None)),
    ({"iterations": 4_095}, (UNACCEPTABLE, "Too few iterations")),
    ({"iterations": 16_385}, (UNACCEPTABLE, "Too many iterations")),
    ({"iterations": -(1 << 31)}, (UNACCEPTABLE, "Too few iterations")),
    ({"iterations": (1 << 31) - 1}, (UNACCEPTABLE, "Too many iterations")),
    ({"name": ""}, (UNACCEPTABLE, "Username must not be empty")),
    ({"mechanism": 0}, (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
    ({"salt": b""}, (0, None)),
    ({"salted_password": b"x"}, (0, None)),
    # Kafka fails with an exception.
    ({"salted_password": b""}, (UNACCEPTABLE, "Salted password must not be empty")),
    # The bounds of Kohort. Kafka's controller ends with an error at 8 MiB.
    ({"salt": SALT, "salted_password": SALT, "name": LONGEST}, (0, None)),
    ({"salt": SALT + b"x"}, (UNACCEPTABLE, "Salt is too long")),
    ({"salted_password": SALT + b"x"}, (UNACCEPTABLE, "Salted password is too long")),
    ({"name": LONGEST + "x"}, (UNACCEPTABLE, "Username is too long")),
]
# fmt: on


@pytest.mark.parametrize(("fields", "answer"), ANSWERS)
def test_answers(fields: dict[str, Any], answer: tuple[int, str | None]) -> None:
    harness = Harness()
    assert alter(harness, **fields) == answer
    stored = harness.broker.catalog.settings(SCRAM)
    assert len(stored) == (answer[0] == 0)


def test_a_stored_credential_that_is_too_large_is_set_aside_by_the_start(caplog: pytest.LogCaptureFixture) -> None:
    node = VirtualNode()
    store = MemoryStore(node.defer)
    catalog = Catalog(store, node.clock)
    small = {"iterations": 4_096, "salt": "", "stored_key": "", "server_key": ""}
    for user, salt in (("a", ""), ("b", "x" * SCRAM_STORED_BYTES_MAX), ("c", "x" * 32_767)):
        setting = Setting(SCRAM, f"1:{user}", small | {"salt": salt})
        catalog.change(CatalogChange(settings=(setting,)), lambda _code: None)
    node.settle()
    assert len(catalog.settings(SCRAM)) == 3
    started = Catalog(store, node.clock)
    assert list(started.settings(SCRAM)) == ["1:a", "1:c"]
    assert "catalog.set_aside key='setting:scram:1:b' error='its 656" in caplog.text


def test_settings_of_other_kinds_are_as_large_as_configurations_may_be(caplog: pytest.LogCaptureFixture) -> None:
    node = VirtualNode()
    store = MemoryStore(node.defer)
    setting = Setting("broker", "1", {"x" * 32_767: "y" * 100_000})
    Catalog(store, node.clock).change(CatalogChange(settings=(setting,)), lambda _code: None)
    node.settle()
    assert list(Catalog(store, node.clock).settings("broker")) == ["1"]
    assert "set_aside" not in caplog.text
