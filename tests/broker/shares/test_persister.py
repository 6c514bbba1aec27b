"""The way to the share coordinator: attempts, their pauses, and what the caller is told."""

from typing import Any
from uuid import UUID

import pytest

from kohort.broker.shares.persister import ATTEMPTS_MAX, CREATION_MS, RETRY_MS_MIN
from kohort.machine.ports import SharePartitionKey, SharePartitionState, StateBatch
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import SHARE_GROUP_STATE
from kohort.server.coordinators.entries import SHARES
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness

KEY = SharePartitionKey("g", UUID(int=7), 0)
UNKNOWN_MS = sum(RETRY_MS_MIN << attempt for attempt in range(ATTEMPTS_MAX - 1))
"""For so long a topic that is unknown may become known."""


def code_of(answer: Any) -> ErrorCode:
    assert isinstance(answer, CoordinatorError)
    return answer.code


def test_without_a_share_coordinator_nothing_is_available() -> None:
    answers: list[Any] = []
    Harness().broker.persister.delete(KEY, answers.append)
    assert list(map(code_of, answers)) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_the_first_call_creates_the_topic_and_every_call_is_served() -> None:
    harness = Harness(share_coordinator_state_topic_num_partitions="2")
    key = KEY._replace(topic_id=harness.create("t"))
    harness.host(SHARES)
    persister, answers = harness.broker.persister, list[Any]()
    persister.initialize(key, 3, 10, answers.append)
    assert answers == []
    harness.node.advance(CREATION_MS)
    topic = harness.broker.catalog.topic(SHARE_GROUP_STATE)
    assert topic is not None
    assert topic.configs["cleanup.policy"] == "delete"
    assert topic.configs["retention.ms"] == "-1"
    changed = SharePartitionState(3, 5, 11, 1, (StateBatch(11, 12, 2, 1),))
    persister.read(key, 5, answers.append)
    persister.write(key, changed, answers.append)
    persister.read(key, 5, answers.append)
    harness.node.settle()
    persister.summary(key, answers.append)
    persister.delete(key, answers.append)
    harness.node.settle()
    persister.summary(key, answers.append)
    summary, nothing = changed._replace(batches=()), SharePartitionState(0, 0, -1, -1)
    assert answers == [None, SharePartitionState(3, 5, 10, 0), None, changed, summary, None, nothing]


@pytest.mark.parametrize("appears", [False, True])
def test_an_unknown_topic_is_looked_for_five_times(appears: bool) -> None:
    harness = Harness()
    harness.host_shares()
    answers: list[Any] = []
    key = KEY._replace(topic_id=harness.create("t"), partition=1)
    harness.broker.persister.summary(key, answers.append)
    harness.node.advance(UNKNOWN_MS - 1)
    assert answers == []
    if appears:
        grown = m.CreatePartitionsTopic(name="t", count=2, assignments=None)
        request = m.CreatePartitionsRequest(topics=[grown], timeout_ms=1_000)
        assert harness.ask(ApiKey.CREATE_PARTITIONS, request).results[0].error_code == 0
    harness.node.advance(1)
    (answer,) = answers
    if appears:
        assert answer == SharePartitionState(0, 0, -1, -1)
    else:
        assert code_of(answer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert str(answer) == "Error in read state summary RPC. This server does not host this topic-partition."


def test_a_coordinator_that_loads_is_asked_again() -> None:
    harness = Harness()
    key = KEY._replace(topic_id=harness.create("t"))
    hosted = harness.host_shares()
    hosted.close()
    answers: list[Any] = []
    harness.broker.persister.initialize(key, 0, 0, answers.append)
    harness.node.advance(RETRY_MS_MIN - 1)
    assert answers == []
    harness.host(SHARES)
    harness.node.advance(1)
    assert answers == [None]


def test_an_error_that_stays_is_told_at_once() -> None:
    harness = Harness()
    harness.host_shares()
    key = KEY._replace(topic_id=harness.create("t"))
    answers: list[Any] = []
    harness.broker.persister.write(key, SharePartitionState(0, 0, 0, 0), answers.append)
    harness.node.settle()
    (answer,) = answers
    assert code_of(answer) is ErrorCode.INVALID_REQUEST
    message = "Write operation on uninitialized share partition not allowed."
    assert str(answer) == f"Error in write state RPC. {message}"
