"""
TxnOffsetCommit: what Apache Kafka 4.2.1 answered (`record_txn_offset_commits`), and what Kohort answers to the same requests.

Kafka's answers are the same in versions 3, 4 and 5 for every group; before version 3 a request names no member.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kohort.group.classic.states import ClassicGroupState
from kohort.group.configs import GroupConfig
from kohort.group.offsets.transactional_commit import ADDS_PARTITION_SINCE
from kohort.machine.shard import Producer
from kohort.model.errors import CoordinatorError, ErrorCode
from tests.group.harness import Coordinator
from tests.tables.groups_in_states import INSTANCES, in_state
from tests.tables.txn_offset_commit_cases import (
    INSTANCE,
    METADATA_MAX,
    SENDERS,
    SHAPES,
    STATES,
    VERSIONS,
    Sender,
    request,
    summary,
)

RECORDED = Path(__file__).parents[1] / "data" / "txn-offset-commits-4.2.1.json"
ORDERS = ("orders", 0)


@cache
def recorded() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(RECORDED.read_text())
    return found


def ask(coordinator: Coordinator, state: str, sender: Sender, version: int, ids: tuple[int, str, str]) -> ErrorCode:
    generation, member_id, pending_id = ids
    names = {"member": member_id, "pending": pending_id}
    codes = coordinator.commit_in_transaction(
        generation=-1 if sender.generation is None else generation + sender.generation,
        member_id=names.get(sender.member, sender.member),
        instance=INSTANCES[1] if sender.instance == INSTANCE else sender.instance,
        version=version,
    )
    return codes[ORDERS]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize("state", STATES)
def test_groups_answer_as_kafkas(state: str, name: str, version: int) -> None:
    sender = SENDERS[name]
    if state in ("absent", "simple"):
        coordinator = Coordinator()
        if state == "simple":
            coordinator.commit({("orders", 1): 1})
        ids = (0, "a member", "a pending member")
    else:
        situation = in_state(ClassicGroupState(state), is_static=sender.instance is not None)
        coordinator = situation.coordinator
        pending_id = situation.pending_id() if sender.member == "pending" else ""
        ids = (situation.generation, situation.follower, pending_id)
    code = ask(coordinator, state, sender, version, ids)
    assert code == recorded()["senders"][state][name]
    is_pending = coordinator.shard.offsets.has_pending("group", ORDERS)
    assert is_pending == (code is ErrorCode.NONE)
    # A commit in a transaction waits for its end, and arms no session.
    assert coordinator.fetch() == ({("orders", 1): 1} if state == "simple" else {})


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", STATES)
def test_producers_before_version_3_name_no_member(state: str, version: int) -> None:
    """Source: KIP-447. The fields of the member are not in the request, and its group cannot fence it."""
    coordinator = Coordinator() if state in ("absent", "simple") else in_state(ClassicGroupState(state)).coordinator
    assert coordinator.commit_in_transaction(version=version)[ORDERS] == recorded()["senders"][state]["nobody"] == 0


@pytest.mark.parametrize("name", SHAPES)
def test_answers_have_the_shape_of_kafkas(name: str) -> None:
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=METADATA_MAX))
    group, topics = SHAPES[name]
    answer = coordinator.ask("txn_offset_commit", request(topics, group=group))
    assert summary(answer) == recorded()["shapes"][name]


CODES_OF_COORDINATOR = {
    "not in the transaction": ErrorCode.TRANSACTION_ABORTABLE,
    "another producer id": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "a negative producer id": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "a later epoch": ErrorCode.INVALID_PRODUCER_EPOCH,
    "an earlier epoch": ErrorCode.INVALID_PRODUCER_EPOCH,
    "an unknown id": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "no id": ErrorCode.INVALID_REQUEST,
}
"""As `kohort.machine.ports.Verification` names them."""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CODES_OF_COORDINATOR)
def test_unverified_transactions(name: str, version: int) -> None:
    coordinator = Coordinator()
    adds = version >= ADDS_PARTITION_SINCE
    if not (adds and name == "not in the transaction"):
        coordinator.unverified = CoordinatorError(CODES_OF_COORDINATOR[name])
    assert coordinator.commit_in_transaction(version=version)[ORDERS] == recorded()["producers"][name][version]
    assert coordinator.verifications == [Producer("transaction", 7, 0, adds_partition=adds)]
    assert (coordinator.end == 0) == (coordinator.unverified is not None)


# fmt: off
ERRORS = {  # of the verification or of the log: the code of versions 0 to 5
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  (15, 15, 14, 14, 14, 14),
    ErrorCode.NETWORK_EXCEPTION:             (15, 15, 14, 14, 14, 14),
    ErrorCode.COORDINATOR_NOT_AVAILABLE:     (15,) * 6,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:    (15,) * 6,
    ErrorCode.NOT_ENOUGH_REPLICAS:           (15,) * 6,
    ErrorCode.REQUEST_TIMED_OUT:             (15,) * 6,
    ErrorCode.NOT_COORDINATOR:               (16,) * 6,
    ErrorCode.NOT_LEADER_OR_FOLLOWER:        (16,) * 6,
    ErrorCode.KAFKA_STORAGE_ERROR:           (16,) * 6,
    ErrorCode.MESSAGE_TOO_LARGE:             (-1,) * 6,
    ErrorCode.RECORD_LIST_TOO_LARGE:         (-1,) * 6,
    ErrorCode.UNSUPPORTED_VERSION:           (35,) * 6,
    ErrorCode.INVALID_TXN_STATE:             (48,) * 6,
    ErrorCode.CONCURRENT_TRANSACTIONS:       (51,) * 6,
    ErrorCode.TRANSACTION_ABORTABLE:         (48, 48, 48, 48, 120, 120),
}
# fmt: on


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", ERRORS)
def test_errors_are_translated(code: ErrorCode, version: int) -> None:
    """Source: KafkaApis.handleTxnOffsetCommitRequest, CoordinatorOperationExceptionHelper, AddPartitionsToTxnManager."""
    coordinator = Coordinator()
    coordinator.unverified = CoordinatorError(code)
    assert coordinator.commit_in_transaction(version=version)[ORDERS] == ERRORS[code][version]
