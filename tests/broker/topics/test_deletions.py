"""The deletion of topics with many partitions, whose logs are deleted in steps."""

import pytest

from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.calls import calls
from tests.broker.harness import Harness
from tests.conftest import watches_calls

PARTITIONS = 350
LAST = PARTITIONS - 1


@pytest.fixture
def harness() -> Harness:
    """A topic of which the first and the last partition were written to."""
    harness = Harness()
    harness.create("t", PARTITIONS)
    harness.write("t", b"old", partition=0)
    harness.write("t", b"old", partition=LAST)
    return harness


def delete(harness: Harness) -> None:
    named = m.DeleteTopicsRequestDeleteTopicState(name="t")
    (answer,) = harness.ask(ApiKey.DELETE_TOPICS, m.DeleteTopicsRequest(topics=[named], timeout_ms=1000)).responses
    assert answer.error_code == 0


def logs(harness: Harness) -> set[int]:
    return {index for topic, index in harness.store.partitions() if topic == "t"}


def test_no_partition_is_found_and_the_logs_go_later(harness: Harness) -> None:
    opened, codes = harness.broker.partitions.find("t", LAST), list[ErrorCode]()
    assert opened is not None
    opened.when_replicated(7, codes.append)
    delete(harness)
    assert harness.broker.partitions.find("t", LAST) is None
    assert opened.topic.is_deleted
    assert (logs(harness), codes) == ({LAST}, [])
    harness.node.advance(10)
    assert (logs(harness), codes) == (set(), [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


def test_a_topic_that_is_created_again_has_new_logs(harness: Harness) -> None:
    delete(harness)
    harness.create("t", PARTITIONS)
    assert harness.write("t", b"new", partition=LAST) == 0
    harness.node.advance(10)
    assert logs(harness) == {LAST}
    assert harness.write("t", b"new", partition=LAST) == 1


def test_a_topic_that_is_deleted_twice(harness: Harness) -> None:
    opened, codes = harness.broker.partitions.find("t", LAST), list[ErrorCode]()
    assert opened is not None
    opened.when_replicated(7, codes.append)
    delete(harness)
    harness.create("t", PARTITIONS)
    delete(harness)
    assert codes == []
    harness.node.advance(10)
    assert (logs(harness), codes) == (set(), [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])


def test_all_logs_go_at_once_before_the_end(harness: Harness) -> None:
    delete(harness)
    harness.broker.partitions.deletions.end_all()
    assert logs(harness) == set()
    harness.node.advance(10)
    harness.create("t", PARTITIONS)
    harness.write("t", b"new", partition=LAST)
    delete(harness)
    harness.node.advance(10)
    assert logs(harness) == set()


@watches_calls
def test_a_deletion_is_as_much_work_however_many_partitions_were_opened() -> None:
    """The first deletion of a process, which imports what it needs, does not count."""
    counts = []
    for partitions in (1, 50, 1_000):
        harness = Harness()
        harness.create("t", partitions)
        for index in range(partitions):
            harness.write("t", b"old", partition=index)
        counts.append(calls(lambda: delete(harness)))  # noqa: B023 -- called at once
    assert counts[1] == counts[2]
