"""The way to the share coordinator: attempts, their pauses, and what the caller is told."""

from uuid import UUID

from kohort.machine.ports import SharePartitionKey
from kohort.model.errors import CoordinatorError, ErrorCode
from tests.broker.harness import Harness

KEY = SharePartitionKey("g", UUID(int=7), 0)


def test_without_a_share_coordinator_nothing_is_available() -> None:
    answers: list[CoordinatorError | None] = []
    Harness().broker.persister.delete(KEY, answers.append)
    (error,) = answers
    assert error is not None
    assert error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
