"""InitProducerId for producers without a transactional id, the blocks of producer ids, and who begins to reserve one."""

from typing import Any

import pytest

from kohort.model.errors import ErrorCode
from kohort.transaction.states import ONGOING
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness
from tests.transaction.bench import T0, Bench, transaction


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


def test_the_next_block_is_reserved_before_the_present_one_is_used_up() -> None:
    harness = hosting()
    ids = harness.broker.producer_ids
    ids.when_available(lambda code: None)
    harness.node.settle()
    taken = [ids.take() for _ in range(900)]
    harness.node.settle()
    assert harness.broker.catalog.next_producer_id == 1000
    taken.append(ids.take())
    harness.node.settle()
    assert harness.broker.catalog.next_producer_id == 2000
    taken += [ids.take() for _ in range(99)]
    assert taken == list(range(1000))
    assert ids.take() == 1000


def test_a_block_is_reserved_once() -> None:
    """The reservation is conditional on the first id, and refused if another caller was quicker."""
    catalog = hosting().broker.catalog
    answers: list[tuple[int, int]] = []
    catalog.reserve_producer_ids(0, 1000, lambda code, first: answers.append((code, first)))
    catalog.reserve_producer_ids(0, 1000, lambda code, first: answers.append((code, first)))
    assert answers == [(ErrorCode.INVALID_UPDATE_VERSION, 0)]
    assert catalog.next_producer_id == 1000


def test_the_ids_are_used_up() -> None:
    catalog = hosting().broker.catalog
    catalog._next_producer_id = (1 << 63) - 1000
    answers: list[int] = []
    catalog.reserve_producer_ids((1 << 63) - 1000, 1000, lambda code, _: answers.append(code))
    assert answers == [ErrorCode.UNKNOWN_SERVER_ERROR]
    catalog._next_producer_id -= 1
    catalog.reserve_producer_ids((1 << 63) - 1001, 1000, lambda code, _: answers.append(code))
    assert len(answers) == 1, "the last block"


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


def test_the_last_epoch_needs_an_id_when_none_is_reserved() -> None:
    """As in Kafka, COORDINATOR_LOAD_IN_PROGRESS at first, and then the new id. EndTxn begins one reservation."""
    bench = Bench()
    bench.put(transaction(state=ONGOING, producer_epoch=32766, partitions=frozenset({T0})))
    bench.ids.is_empty = True
    refused = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert [bench.end(1000, 32766, version=5) for _ in range(3)] == [refused] * 3
    assert len(bench.ids.waiting) == 1
    # A reservation that fails is begun again.
    bench.ids.waiting.pop()(ErrorCode.KAFKA_STORAGE_ERROR)
    assert bench.end(1000, 32766, version=5) == refused
    bench.ids.is_empty = False
    bench.ids.waiting.pop()(ErrorCode.NONE)
    assert bench.end(1000, 32766, version=5) == (ErrorCode.NONE, 1000, 0)
    assert bench.states()[-1] == ("CompleteCommit", 1000, 0)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id(version: int) -> None:
    assert init(hosting(), version=version) == (0, 0, 0)
