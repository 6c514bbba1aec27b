"""Long commits in transactions are answered as short ones, and any survive another writer. `test_offsets` has OffsetCommit."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from kohort.group.configs import GroupConfig
from kohort.group.offsets import transactional_commit
from kohort.machine.bulk import LONG_RECORDS_STEP
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.runtime.states import State
from kohort.testing import FixedContext
from kohort.testing.context import take_all
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import read_header
from tests.conftest import watches_calls
from tests.group.harness import Coordinator, Image, Topic

Topics = Sequence[tuple[str, Sequence[tuple[int, str]]]]
TOPICS: dict[str, Topics] = {
    "all exist": [("orders", [(0, ""), (1, "")])],
    "some are missing": [("orders", [(0, ""), (4, "")]), ("none", [(0, "")]), ("payments", []), ("orders", [(1, "")])],
    "none exists": [("none", [(0, "")]), ("orders", [(9, "")])],
    "metadata": [("orders", [(0, "long"), (1, "ok")]), ("payments", [(0, "long")])],
    "all metadata too long": [("orders", [(0, "long")])],
    "nothing": [],
}


def request_of(topics: Topics, **fields: Any) -> m.TxnOffsetCommitRequest:
    values: dict[str, Any] = {
        "transactional_id": "transaction",
        "group_id": "group",
        "producer_id": 7,
        "producer_epoch": 0,
        "topics": [
            m.TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    m.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=index + 5, committed_metadata=metadata
                    )
                    for index, metadata in partitions
                ],
            )
            for name, partitions in topics
        ],
    }
    return m.TxnOffsetCommitRequest(**values | fields)


def answer(coordinator: Coordinator, request: m.TxnOffsetCommitRequest, *, is_long: bool, version: int = 5) -> Any:
    if not is_long:
        return coordinator.ask("txn_offset_commit", request, version=version).response
    answers: list[Any] = []
    handler = coordinator.service.handlers()[ApiKey.TXN_OFFSET_COMMIT].in_steps  # type: ignore[attr-defined]
    take_all(handler(request, FixedContext(version, "client", "/127.0.0.1"), answers.append), answers.append)
    coordinator.node.settle()
    (found,) = answers
    return found


def test_another_writer_that_is_noticed_within_a_long_commit() -> None:
    """A short commit is in the open batch, whose append begins the long one, and lands behind records of the other writer."""
    coordinator = Coordinator()
    coordinator.image.by_name["orders"] = Topic("orders", UUID(int=1), 2_000)
    coordinator.is_burst = True
    short = coordinator.ask("offset_commit", commit_of("short", 1))
    coordinator.log.shift_next_append = 1
    answers: list[Any] = []
    handler = coordinator.service.handlers()[ApiKey.OFFSET_COMMIT].in_steps  # type: ignore[attr-defined]
    take_all(handler(commit_of("long", 2_000), FixedContext(9), answers.append), answers.append)
    coordinator.is_burst = False
    coordinator.node.settle()
    (long,) = answers
    assert {found.error_code for found in long.topics[0].partitions} == {ErrorCode.NOT_COORDINATOR}
    assert short.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert coordinator.runtime.states()[0] is State.ACTIVE, "the partition is loaded again"
    later = coordinator.ask("offset_commit", commit_of("short", 1))
    assert later.topics[0].partitions[0].error_code == ErrorCode.NONE


def commit_of(group: str, count: int) -> m.OffsetCommitRequest:
    partitions = [m.OffsetCommitRequestPartition(partition_index=index, committed_offset=1) for index in range(count)]
    return m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[m.OffsetCommitRequestTopic(name="orders", partitions=partitions)],
    )


@pytest.mark.parametrize("topics", TOPICS.values(), ids=TOPICS)
@pytest.mark.parametrize(
    "fields",
    [{}, {"group_id": ""}, {"generation_id_or_member_epoch": 3}, {"member_id": "stranger"}],
    ids=["allowed", "no group", "generation", "member"],
)
@pytest.mark.parametrize("is_active", [True, False])
def test_a_long_commit_is_answered_as_a_short_one(topics: Topics, fields: dict[str, Any], is_active: bool) -> None:
    found = []
    for is_long in (False, True):
        coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=3))
        coordinator.service.is_active = is_active
        given = answer(coordinator, request_of(topics, **fields), is_long=is_long)
        coordinator.end_transaction(committed=True)
        found.append(
            (list(given.topics), coordinator.records(), coordinator.fetch(), coordinator.shard.context.counters)
        )
    assert found[0][:3] == found[1][:3]
    assert found[0][3].offset_commits == found[1][3].offset_commits


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_transaction_that_cannot_be_verified(version: int) -> None:
    found = []
    for is_long in (False, True):
        coordinator = Coordinator()
        coordinator.unverified = CoordinatorError(ErrorCode.TRANSACTION_ABORTABLE)
        found.append(answer(coordinator, request_of(TOPICS["all exist"]), is_long=is_long, version=version))
    assert found[0] == found[1]


def test_the_offsets_of_a_long_commit_become_pending_as_a_whole() -> None:
    coordinator = Coordinator()
    count = 2 * LONG_RECORDS_STEP + 1
    names = [f"t{number}" for number in range(count)]
    coordinator.service.image = coordinator.image = Image(names)
    request = request_of([(name, [(0, "")]) for name in names])
    answer(coordinator, request, is_long=True)
    assert [read_header(batch).record_count for batch in coordinator.log.batches] == [count]
    assert len(coordinator.shard.offsets.pending[7]) == count
    assert coordinator.fetch() == {}
    coordinator.end_transaction(committed=True)
    assert coordinator.fetch() == {(name, 0): 5 for name in names}


@watches_calls
@pytest.mark.parametrize(
    ("group_id", "code"), [("group", ErrorCode.NONE), ("other", ErrorCode.INVALID_COMMIT_OFFSET_SIZE)]
)
def test_a_long_commit_beyond_the_bound_of_pending_offsets_is_refused(
    group_id: str, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are pending already are counted once. The same partitions of another group are others."""
    monkeypatch.setattr(transactional_commit, "PENDING_OFFSETS_MAX", 3)
    coordinator = Coordinator()
    topics = TOPICS["all exist"]
    answer(coordinator, request_of(topics), is_long=True)
    given = answer(coordinator, request_of(topics, group_id=group_id), is_long=True)
    assert [entry.error_code for topic in given.topics for entry in topic.partitions] == [code] * 2
    assert len(coordinator.shard.offsets.pending[7]) == 2
