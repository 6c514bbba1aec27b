"""
Queries about transactional ids: list and description.

Source: KIP-664, KIP-994, KIP-1152; Kafka ListTransactionsHandler, DescribeTransactionsHandler.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from kohort.client.addresses import Address
from kohort.client.cluster import Client, CoordinatorKind
from kohort.client.connection import ANY, Versions, refusal
from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.model.suggestion import suggestion
from kohort.wire import messages
from kohort.wire.apis import ApiKey

ONGOING = "Ongoing"
OPEN_STATES = (ONGOING, "PrepareCommit", "PrepareAbort")
"""States of a transaction whose partitions wait for a marker."""

STATES = ("Empty", *OPEN_STATES, "CompleteCommit", "CompleteAbort")
"""All states of a transactional id that a coordinator shows."""

NO_TIMEOUT_MS = (1 << 31) - 1
"""The timeout of a transaction of two-phase commit, which the coordinator never aborts by itself (KIP-939)."""

_ALL_DURATIONS = -1
_NO_START = -1
_NEWEST = 1 << 15
_WITH_DURATION = Versions(1, _NEWEST)
"""Versions of ListTransactions with a filter of durations."""
_WITH_PATTERN = Versions(2, _NEWEST)
"""Versions of ListTransactions with a pattern of transactional ids."""


class Filters(NamedTuple):
    """
    Filters of a list of transactional ids; all of them have to match.

    Attributes:
        states: states by Kafka's names; empty for all.
        producer_ids: empty for all.
        longer_than_ms: only transactions that began longer ago; None for all.
        pattern: a regular expression (RE2J) for the whole transactional id; None for all.
    """

    states: Sequence[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int | None = None
    pattern: str | None = None


class ListedTransaction(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: Address
    coordinator_id: int


class Transaction(NamedTuple):
    """
    A transactional id as its coordinator describes it.

    Attributes:
        start_ms: the time of the transaction's first partition; None if there is no transaction.
        partitions: partitions that the coordinator will write a marker to.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: list[TopicPartition]
    coordinator: Address

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    def timeout_left_ms(self, now_ms: int) -> int | None:
        """Return the time until the coordinator may abort the transaction, negative if it is overdue; None if it will not."""
        if self.state != ONGOING or self.start_ms is None or self.timeout_ms == NO_TIMEOUT_MS:
            return None
        return self.start_ms + self.timeout_ms - now_ms


def parse_states(names: Iterable[str]) -> list[str]:
    """
    Return states by Kafka's names. Upper and lower case do not matter here; they do in Kafka's filter.

    Raises:
        ConfigError: there is no such state.
    """
    known = {state.lower(): state for state in STATES}
    for name in names:
        if name.lower() not in known:
            raise ConfigError(f"--state {name!r} is not a state of a transactional id; they are {', '.join(STATES)}")
    return list(dict.fromkeys(known[name.lower()] for name in names))


def list_transactions(client: Client, filters: Filters) -> list[ListedTransaction]:
    """
    List the transactional ids of all coordinators, sorted by id.

    A duration keeps transactional ids without a transaction in Kafka. Here it means open transactions, unless `filters` has
    states.

    Raises:
        CoordinatorError: a broker returned an error.
    """
    is_by_duration = filters.longer_than_ms is not None
    states = filters.states or (OPEN_STATES if is_by_duration else ())
    request = messages.ListTransactionsRequest(
        state_filters=states,
        producer_id_filters=sorted(filters.producer_ids),
        duration_filter=_ALL_DURATIONS if filters.longer_than_ms is None else filters.longer_than_ms,
        transactional_id_pattern=filters.pattern,
    )
    within = _WITH_PATTERN if filters.pattern else _WITH_DURATION if is_by_duration else ANY
    found: dict[str, ListedTransaction] = {}
    for broker_id, address in client.brokers().items():
        response = client.send_to_broker(
            address, ApiKey.LIST_TRANSACTIONS, request, error_code=lambda response: response.error_code, within=within
        )
        if response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION:
            raise ConfigError(f"--id-pattern {filters.pattern!r} is not a regular expression")
        if response.error_code:
            raise refusal(response.error_code, f"transactions of the broker at {address}")
        for each in response.transaction_states:
            found[each.transactional_id] = ListedTransaction(
                each.transactional_id, each.transaction_state, each.producer_id, address, broker_id
            )
    return [found[each] for each in sorted(found)]


def describe_transaction(client: Client, transactional_id: str) -> Transaction:
    """
    Describe a transactional id.

    Raises:
        ConfigError: its coordinator does not know it.
        CoordinatorError: the coordinator returned another error.
    """
    found = find_transaction(client, transactional_id)
    if found is None:
        near = suggestion(transactional_id, [each.transactional_id for each in list_transactions(client, Filters())])
        raise ConfigError(
            f"transactional id {transactional_id!r} does not exist{near or '; see: kohort transactions list'}"
        )
    return found


def find_transaction(client: Client, transactional_id: str) -> Transaction | None:
    """Describe a transactional id. Returns None if its coordinator does not know it."""
    response = client.send_to_coordinator(
        transactional_id,
        ApiKey.DESCRIBE_TRANSACTIONS,
        messages.DescribeTransactionsRequest(transactional_ids=(transactional_id,)),
        error_code=lambda response: _only(response).error_code,
        kind=CoordinatorKind.TRANSACTION,
    )
    state = _only(response)
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return None
    if state.error_code:
        raise refusal(state.error_code, f"transactional id {transactional_id}")
    return Transaction(
        transactional_id=transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=None if state.transaction_start_time_ms == _NO_START else state.transaction_start_time_ms,
        partitions=sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions),
        coordinator=client.coordinator(transactional_id, CoordinatorKind.TRANSACTION),
    )


def _only(response: Any) -> Any:
    """Return the state of the only transactional id of the request."""
    (state,) = response.transaction_states
    return state
