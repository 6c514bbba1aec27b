"""InitProducerId for producers without a transactional id, and the blocks of producer ids."""

from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness


def hosting() -> Harness:
    harness = Harness()
    harness.host_transactions(has_topic=False)
    return harness


def init(harness: Harness, *, version: int = 5, **what: Any) -> tuple[int, int, int]:
    request = m.InitProducerIdRequest(**{"transactional_id": None} | what)
    answer = harness.ask(ApiKey.INIT_PRODUCER_ID, request, version=version)
    return (answer.error_code, answer.producer_id, answer.producer_epoch)


def test_every_producer_gets_an_id_of_its_own() -> None:
    harness = hosting()
    request = m.InitProducerIdRequest(transactional_id=None)
    waiting = [harness.begin(ApiKey.INIT_PRODUCER_ID, request) for _ in range(1001)]
    assert waiting == [[]] * 1001, "until the first block is durable"
    harness.node.settle()
    assert [answers[0].producer_id for answers in waiting] == list(range(1001))
    assert len(harness.begin(ApiKey.INIT_PRODUCER_ID, request)) == 1


# fmt: off
INIT: dict[str, tuple[dict[str, Any], tuple[int, int, int]]] = {
    "without anything":           ({},                                            (0, 0, 0)),
    "an id of before":            ({"producer_id": 77, "producer_epoch": 3},      (0, 0, 0)),
    "an id without its epoch":    ({"producer_id": 77, "producer_epoch": -1},     (ErrorCode.INVALID_REQUEST, -1, -1)),
    "an epoch without its id":    ({"producer_id": -1, "producer_epoch": 3},      (ErrorCode.INVALID_REQUEST, -1, -1)),
    "an empty transactional id":  ({"transactional_id": ""},                      (ErrorCode.INVALID_REQUEST, -1, -1)),
    "nothing is loaded":          (
        {"transactional_id": "tx", "transaction_timeout_ms": 1},                  (ErrorCode.NOT_COORDINATOR, -1, -1)
    ),
}
# fmt: on


@pytest.mark.parametrize("what", INIT)
def test_init_producer_id(what: str) -> None:
    arguments, expected = INIT[what]
    assert init(hosting(), **arguments) == expected


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id(version: int) -> None:
    assert init(hosting(), version=version) == (0, 0, 0)
