"""
TxnOffsetCommit: what Apache Kafka 4.4.0 answered (`record_txn_offset_commits`), and what Kohort answers to the same requests.

Before version 3 a request names no member. From version 6 on it has the ids of topics.
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
from kohort.records.values import OffsetCommit
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import request_reader
from tests.group.consumer.members import Member
from tests.group.harness import Coordinator
from tests.tables.groups_in_states import INSTANCES, in_state
from tests.tables.txn_offset_commit_cases import (
    CLASSIC_STATES,
    INSTANCE,
    MEMBER_VERSIONS,
    METADATA_MAX,
    SENDERS,
    SHAPES,
    STATES,
    TOPIC_IDS,
    VERSIONS,
    Sender,
    request,
    summary,
)

RECORDED = Path(__file__).parents[1] / "data" / "txn-offset-commits-4.4.0.json"
ORDERS = ("orders", 0)
BODY = 4 + 11
"""Where the body of a flexible request without client id begins: behind the size of the frame and the header."""


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


def not_classic(state: str, *, is_static: bool = False) -> tuple[Coordinator, tuple[int, str, str]]:
    """A group in one of the other states; its generation or epoch, its member, and an id that has not joined."""
    coordinator, epoch = Coordinator(), 0
    if state == "simple":
        coordinator.commit({("orders", 1): 1})
    elif state == "consumer":
        epoch = Member(coordinator, "a member", instance=INSTANCE if is_static else None).join().member_epoch
    return coordinator, (epoch, "a member", "a pending member")


@pytest.mark.parametrize("version", MEMBER_VERSIONS)
@pytest.mark.parametrize("name", SENDERS)
@pytest.mark.parametrize("state", STATES)
def test_groups_answer_as_kafkas(state: str, name: str, version: int) -> None:
    sender = SENDERS[name]
    if state not in CLASSIC_STATES:
        coordinator, ids = not_classic(state, is_static=sender.instance is not None)
    else:
        situation = in_state(ClassicGroupState(state), is_static=sender.instance is not None)
        coordinator = situation.coordinator
        pending_id = situation.pending_id() if sender.member == "pending" else ""
        ids = (situation.generation, situation.follower, pending_id)
    code = ask(coordinator, state, sender, version, ids)
    assert code == recorded()["senders"][state][name][version - MEMBER_VERSIONS[0]]
    is_pending = coordinator.shard.offsets.has_pending("group", ORDERS)
    assert is_pending == (code is ErrorCode.NONE)
    # A commit in a transaction waits for its end, and arms no session.
    assert coordinator.fetch() == ({("orders", 1): 1} if state == "simple" else {})


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", STATES)
def test_producers_before_version_3_name_no_member(state: str, version: int) -> None:
    """Source: KIP-447. The fields of the member are not in the request, and its group cannot fence it."""
    is_classic = state in CLASSIC_STATES
    coordinator = in_state(ClassicGroupState(state)).coordinator if is_classic else not_classic(state)[0]
    assert coordinator.commit_in_transaction(version=version)[ORDERS] == 0
    assert recorded()["senders"][state]["nobody"][0] == 0


@pytest.mark.parametrize("version", [5, 6])
@pytest.mark.parametrize("name", SHAPES)
def test_answers_have_the_shape_of_kafkas(name: str, version: int) -> None:
    coordinator = Coordinator(GroupConfig(offset_metadata_max_bytes=METADATA_MAX))
    group, topics = SHAPES[name]
    topic_ids = {**TOPIC_IDS, "orders": coordinator.image.by_name["orders"].topic_id}
    frame = request_encoder(ApiKey.TXN_OFFSET_COMMIT, version)(1, "", request(topics, group=group, topic_ids=topic_ids))
    received = request_reader(ApiKey.TXN_OFFSET_COMMIT, version)(frame, BODY)
    answer = coordinator.ask("txn_offset_commit", received, version=version)
    shown = summary(answer, topic_ids if version == 6 else None)
    assert shown == recorded()["shapes"][name][str(version)]


def test_a_commit_by_topic_ids_is_logged_by_names() -> None:
    coordinator = Coordinator()
    topic_id = coordinator.image.by_name["orders"].topic_id
    coordinator.ask("txn_offset_commit", request(topic_ids={"orders": topic_id}), version=6)
    assert coordinator.records() == [
        OffsetCommit("group", "orders", 0, 5, -1, "", coordinator.now_ms, topic_id=topic_id)
    ]


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
ERRORS = {  # of the verification or of the log: the code of versions 0 to 6
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  (15, 15, 14, 14, 14, 14, 14),
    ErrorCode.NETWORK_EXCEPTION:             (15, 15, 14, 14, 14, 14, 14),
    ErrorCode.COORDINATOR_NOT_AVAILABLE:     (15,) * 7,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:    (15,) * 7,
    ErrorCode.NOT_ENOUGH_REPLICAS:           (15,) * 7,
    ErrorCode.REQUEST_TIMED_OUT:             (15,) * 7,
    ErrorCode.NOT_COORDINATOR:               (16,) * 7,
    ErrorCode.NOT_LEADER_OR_FOLLOWER:        (16,) * 7,
    ErrorCode.KAFKA_STORAGE_ERROR:           (16,) * 7,
    ErrorCode.MESSAGE_TOO_LARGE:             (-1,) * 7,
    ErrorCode.RECORD_LIST_TOO_LARGE:         (-1,) * 7,
    ErrorCode.UNSUPPORTED_VERSION:           (35,) * 7,
    ErrorCode.INVALID_TXN_STATE:             (48,) * 7,
    ErrorCode.CONCURRENT_TRANSACTIONS:       (51,) * 7,
    ErrorCode.TRANSACTION_ABORTABLE:         (48, 48, 48, 48, 120, 120, 120),
}
# fmt: on


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("code", ERRORS)
def test_errors_are_translated(code: ErrorCode, version: int) -> None:
    """Source: KafkaApis.handleTxnOffsetCommitRequest, CoordinatorOperationExceptionHelper, AddPartitionsToTxnManager."""
    coordinator = Coordinator()
    coordinator.unverified = CoordinatorError(code)
    assert coordinator.commit_in_transaction(version=version)[ORDERS] == ERRORS[code][version]
