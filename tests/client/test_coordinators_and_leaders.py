"""Requests of the client to coordinators of both kinds, to brokers, and to leaders of partitions."""

from typing import Any

import pytest

from kohort.client.cluster import Client, CoordinatorKind
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.client.scripted_broker import ScriptedBroker, versions
from tests.clients.waiting import PATIENCE_S

ORDERS = TopicPartition("orders", 0)


class Script:
    """
    A broker that leads `orders`, and answers ListTransactions with codes, the last one again and again.

    Attributes:
        leaders: leaders in the next Metadata responses; the last one is repeated.
        sought: keys and key types in FindCoordinator.
    """

    def __init__(self, *codes: ErrorCode, leaders: tuple[int, ...] = (1,), topic: ErrorCode = ErrorCode.NONE) -> None:
        self.codes = list(codes)
        self.leaders = list(leaders)
        self.topic = topic
        self.sought: list[tuple[str, int]] = []
        self.port = -1

    def __call__(self, api: ApiKey, version: int, request: Any) -> Any:
        return getattr(self, f"_{api.name.lower()}")(request)

    def _api_versions(self, _request: Any) -> Any:
        return versions(METADATA=(0, 13), FIND_COORDINATOR=(0, 6), LIST_TRANSACTIONS=(0, 2))

    def _metadata(self, request: Any) -> Any:
        leader = self.leaders.pop(0) if len(self.leaders) > 1 else self.leaders[0]
        partition = messages.MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=0)
        return messages.MetadataResponse(
            brokers=[messages.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            topics=[
                messages.MetadataResponseTopic(
                    name=each.name, error_code=self.topic, partitions=() if self.topic else [partition]
                )
                for each in request.topics or ()
            ],
        )

    def _find_coordinator(self, request: Any) -> Any:
        self.sought += [(key, request.key_type) for key in request.coordinator_keys]
        return messages.FindCoordinatorResponse(
            coordinators=[
                messages.FindCoordinatorResponseCoordinator(key=key, node_id=1, host="127.0.0.1", port=self.port)
                for key in request.coordinator_keys
            ]
        )

    def _list_transactions(self, _request: Any) -> Any:
        return messages.ListTransactionsResponse(error_code=self.codes.pop(0) if len(self.codes) > 1 else self.codes[0])


def code_of(response: Any) -> int:
    return int(response.error_code)


def ask_leader(client: Client) -> Any:
    return client.send_to_leader(
        ORDERS, ApiKey.LIST_TRANSACTIONS, messages.ListTransactionsRequest(), error_code=code_of
    )


def test_a_group_and_a_transactional_id_of_one_name_have_coordinators_of_their_own() -> None:
    script = Script(ErrorCode.NONE)
    with ScriptedBroker(script) as broker, Client(broker.address) as client:
        script.port = broker.port
        for kind in (CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION, CoordinatorKind.TRANSACTION):
            client.coordinator("shop", kind)
    assert script.sought == [("shop", 0), ("shop", 1)]


def test_a_coordinator_of_transactions_that_moved_is_looked_up_again() -> None:
    script = Script(ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE)
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=PATIENCE_S) as client:
        script.port = broker.port
        client.send_to_coordinator(
            "shop",
            ApiKey.LIST_TRANSACTIONS,
            messages.ListTransactionsRequest(),
            error_code=code_of,
            kind=CoordinatorKind.TRANSACTION,
        )
    assert script.sought == [("shop", 1)] * 3


@pytest.mark.parametrize(
    ("codes", "leaders", "asked"),
    [
        ((ErrorCode.NONE,), (1,), 1),
        ((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE), (1,), 2),
        ((ErrorCode.NONE,), (-1, 9, 1), 1),
        ((ErrorCode.INVALID_TXN_STATE,), (1,), 1),
    ],
    ids=["at once", "the leader moved", "no leader yet", "an error that is not retried"],
)
def test_a_leader_is_looked_up_until_it_answers(
    codes: tuple[ErrorCode, ...], leaders: tuple[int, ...], asked: int
) -> None:
    script = Script(*codes, leaders=leaders)
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=PATIENCE_S) as client:
        script.port = broker.port
        assert code_of(ask_leader(client)) == codes[-1]
    apis = [api for api, _ in broker.asked]
    assert apis.count(ApiKey.LIST_TRANSACTIONS) == asked
    assert apis.count(ApiKey.METADATA) == max(asked, len(leaders))


@pytest.mark.parametrize("leader", [-1, 1], ids=["no leader", "never the leader"])
def test_a_partition_that_stays_without_a_leader_is_a_sentence(leader: int) -> None:
    script = Script(ErrorCode.NOT_LEADER_OR_FOLLOWER, leaders=(leader,))
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=PATIENCE_S) as client:
        script.port = broker.port
        client.leader(ORDERS) if leader == 1 else client.brokers()
        client.timeout_s = 0.2
        with pytest.raises(ConfigError, match=r"orders-0 has no ready leader within 0\.2 s: (NOT_LEADER|LEADER_NOT)"):
            ask_leader(client)


def test_a_partition_that_does_not_exist_is_a_sentence() -> None:
    script = Script(ErrorCode.NONE)
    with ScriptedBroker(script) as broker, Client(broker.address) as client:
        script.port = broker.port
        with pytest.raises(ConfigError, match="topic orders has no partition 4; it has 1"):
            client.leader(TopicPartition("orders", 4))
        script.topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(ConfigError, match="topic 'orders' does not exist; see: kohort topics list"):
            client.leader(ORDERS)
        script.topic = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(CoordinatorError, match="TOPIC_AUTHORIZATION_FAILED"):
            client.leader(ORDERS)


def test_the_coordinators_of_a_broker_are_waited_for() -> None:
    script = Script(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE)
    with ScriptedBroker(script) as broker, Client(broker.address, timeout_s=PATIENCE_S) as client:
        script.port = broker.port
        (address,) = client.brokers().values()
        request = messages.ListTransactionsRequest()
        client.send_to_broker(address, ApiKey.LIST_TRANSACTIONS, request, error_code=code_of)
    assert [api for api, _ in broker.asked].count(ApiKey.LIST_TRANSACTIONS) == 3
