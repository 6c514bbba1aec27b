"""Transactions as values, and the named states that tests wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from kohort.control.cluster.groups import AssignedTopic, snake_case
from kohort.control.cluster.inside import ELSEWHERE, Inside
from kohort.control.web.problems import Problem
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

STATES: Final = (
    "absent",
    "empty",
    "ongoing",
    "prepare_commit",
    "prepare_abort",
    "complete_commit",
    "complete_abort",
    "dead",
    "prepare_epoch_fence",
    "complete",
)


class TransactionView(msgspec.Struct, frozen=True, kw_only=True):
    """
    A transactional id as it is now.

    Attributes:
        state: Kafka's word in snake case; "absent" if there is no such id.
        start_time_ms: of the transaction; -1 without one.
        partitions: of the transaction, markers still to be written included.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: Sequence[AssignedTopic]
    coordinator: int


async def transaction_view(inside: Inside, transactional_id: str) -> TransactionView:
    """
    A transactional id now.

    Raises:
        Problem: its coordinator does not answer.
    """
    for node_id in inside.running:
        request = m.DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = await inside.ask(ApiKey.DESCRIBE_TRANSACTIONS, request, node_id=node_id)
        (found,) = answer.transaction_states
        if found.error_code in ELSEWHERE:
            continue
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            break
        if found.error_code:
            code = ErrorCode(found.error_code).name
            raise Problem(
                503, "not-ready", f"the coordinator of the transactional id {transactional_id!r} answers {code}"
            )
        return TransactionView(
            transactional_id=transactional_id,
            state=snake_case(found.transaction_state),
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            timeout_ms=found.transaction_timeout_ms,
            start_time_ms=found.transaction_start_time_ms,
            partitions=[AssignedTopic(each.topic, sorted(each.partitions)) for each in found.topics],
            coordinator=node_id,
        )
    return TransactionView(
        transactional_id=transactional_id,
        state="absent",
        producer_id=-1,
        producer_epoch=-1,
        timeout_ms=-1,
        start_time_ms=-1,
        partitions=[],
        coordinator=-1,
    )


def has_state(view: TransactionView, state: str) -> bool:
    """Whether a transactional id has a state; "complete" stands for both ends."""
    return view.state == state or (state == "complete" and view.state.startswith("complete_"))
