"""How a node hosts coordinators: leadership of their partitions, changes of the cluster, requests, markers, the end."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from kohort.broker.broker import Broker
from kohort.broker.ports import Handler
from kohort.machine.results import Result
from kohort.machine.shard import PlainShard
from kohort.model.errors import ErrorCode
from kohort.model.ids import TRANSACTION_STATE
from kohort.model.image import ClusterImage, ImageDelta
from kohort.runtime.processors import InlineProcessor
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.hosted_coordinator import Coordinator, CoordinatorEntry
from kohort.server.metrics.figures import figure
from kohort.transaction.records import TransactionRecordSerde
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness


class Registrar(PlainShard[Any]):
    """A shard on `__transaction_state` that notes what it is told."""

    def __init__(self, told: list[Any], partition: int) -> None:
        self._told = told
        self._partition = partition

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: Any, /) -> None:
        raise NotImplementedError

    def replay_end_transaction_marker(self, producer_id: int, _producer_epoch: int, /, *, committed: bool) -> None:
        self._told.append(("end", self._partition, producer_id, committed))

    def on_coordinator_epoch(self, coordinator_epoch: int, /) -> None:
        self._told.append(("epoch", self._partition, coordinator_epoch))

    def on_loaded(self, _image: ClusterImage, _now_ms: int, /) -> None:
        self._told.append(("load", self._partition))

    def on_image(self, image: ClusterImage, delta: ImageDelta, _now_ms: int, /) -> Result[Any, None]:
        deleted = [topic.name for topic in delta.deleted]
        self._told.append(("image", self._partition, sorted(topic.name for topic in image.topics()), deleted))
        return Result()

    def on_unloaded(self) -> None:
        self._told.append(("unload", self._partition))


class Service:
    """The service of the registrars."""

    is_active = True

    def handlers(self) -> Mapping[ApiKey, Handler]:
        return {
            ApiKey.LIST_TRANSACTIONS: lambda *_: m.ListTransactionsResponse(unknown_state_filters=[str(self.is_active)])
        }


class Host:
    """A broker that hosts one coordinator."""

    def __init__(self, *, is_transactional: bool = True) -> None:
        self._told: list[Any] = []
        self._is_transactional = is_transactional
        self.harness = Harness(transaction_state_log_num_partitions="2")
        node = self.harness.node
        self.coordinators = Coordinators(node.defer)
        self.coordinators.start(
            [CoordinatorEntry(topic=TRANSACTION_STATE, apis=frozenset({ApiKey.LIST_TRANSACTIONS}), make=self._make)],
            self.harness.broker,
            lambda: InlineProcessor(node.wheel, node.defer, node.call_soon),
        )
        for topic in self.hosted:
            self.harness.coordinators[topic] = self.coordinators.marker_writer(topic)

    def _make(self, _broker: Broker) -> Coordinator[Registrar, Service]:
        return Coordinator(
            name="transaction",
            serde=TransactionRecordSerde(lambda: 2),
            make_shard=lambda _runtime, partition, _registry, _deadlines: Registrar(self._told, partition),
            make_service=lambda _runner: Service(),
            figures=lambda _service: figure("kohort_transaction_coordinator_ids", "", "Transactional ids.", 7),
            is_transactional=self._is_transactional,
            write_timeout_ms=1_000,
            load_buffer_bytes=1 << 20,
        )

    @property
    def hosted(self) -> list[str]:
        return [topic for topic in (TRANSACTION_STATE, "__consumer_offsets") if self.coordinators.is_hosted(topic)]

    def told(self) -> list[Any]:
        """What the shards were told since the last call."""
        self.harness.node.settle()
        told = self._told[:]
        self._told.clear()
        return told

    def find(self) -> None:
        request = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"])
        self.harness.ask(ApiKey.FIND_COORDINATOR, request)


def test_partitions_are_loaded_when_their_topic_appears_and_unloaded_when_it_goes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = Host()
    assert host.hosted == [TRANSACTION_STATE]
    host.coordinators.load()
    assert host.told() == [], "there is no topic yet"
    with caplog.at_level(logging.DEBUG, "kohort.server"):
        host.find()
        loaded = [("epoch", 0, 0), ("load", 0), ("epoch", 1, 0), ("load", 1)]
        assert host.told() == [*loaded, *(("image", partition, [TRANSACTION_STATE], []) for partition in (0, 1))]
        host.harness.create("t")
        assert host.told() == [("image", partition, [TRANSACTION_STATE, "t"], []) for partition in (0, 1)]
        for name in ("t", TRANSACTION_STATE):
            request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name=name)], timeout_ms=1)
            host.harness.ask(ApiKey.DELETE_TOPICS, request)
    images = [("image", partition, [TRANSACTION_STATE], ["t"]) for partition in (0, 1)]
    assert host.told() == [*images, ("unload", 0), ("unload", 1)]
    assert caplog.messages[:2] == [
        f"coordinator.load partition={TRANSACTION_STATE}-{partition} leader_epoch=0" for partition in (0, 1)
    ]
    assert caplog.messages[-1] == f"coordinator.unload partition={TRANSACTION_STATE}-1 leader_epoch=0 reason=deleted"


def test_a_second_load_announces_newer_leader_epochs_only(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.find()
    host.told()
    partition = host.harness.broker.partitions.find(TRANSACTION_STATE, 1)
    assert partition is not None
    partition.begin_epoch(5)
    with caplog.at_level(logging.INFO, "kohort.server"):
        host.coordinators.load()
        host.coordinators.load()
        assert host.told() == [("epoch", 1, 5)]
        partition.leader_epoch = 3
        host.coordinators.load()
    assert host.told() == []
    assert caplog.messages == [
        f"coordinator.new_epoch partition={TRANSACTION_STATE}-1 leader_epoch=5 broker=1",
        f"coordinator.stale_epoch_ignored partition={TRANSACTION_STATE}-1 leader_epoch=3 known=5",
    ]


def end(host: Host) -> ErrorCode:
    topic = m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name=TRANSACTION_STATE, partition_indexes=[1])
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(producer_id=7, producer_epoch=0, topics=[topic])
    response = host.harness.ask(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]))
    return ErrorCode(response.markers[0].topics[0].partitions[0].error_code)


def test_its_apis_are_served_and_its_markers_are_its_own() -> None:
    host = Host()

    def is_active() -> str:
        (answer,) = host.harness.ask(ApiKey.LIST_TRANSACTIONS, m.ListTransactionsRequest()).unknown_state_filters
        return str(answer)

    assert is_active() == "True"
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    shown = {api.api_key for api in host.harness.ask(ApiKey.API_VERSIONS, request, version=4).api_keys}
    assert ApiKey.LIST_TRANSACTIONS in shown
    host.find()
    host.told()
    assert end(host) is ErrorCode.NONE
    assert host.told() == [("end", 1, 7, False)]
    names = [family.name for family in host.coordinators.metrics() if family]
    assert names[0] == "kohort_transaction_coordinator_ids"
    assert "kohort_transaction_coordinator_partitions" in names
    host.coordinators.close()
    assert host.told() == [("unload", 0), ("unload", 1)]
    assert is_active() == "False"
    assert end(host) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nothing_is_loaded_after_the_end(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    with caplog.at_level(logging.DEBUG, "kohort.server"):
        host.harness.broker.creation.auto_create(TRANSACTION_STATE)
        host.coordinators.close()
        assert host.harness.broker.catalog.topic(TRANSACTION_STATE) is None
        assert host.told() == []
        assert host.harness.broker.catalog.topic(TRANSACTION_STATE) is not None, "the change is committed"
        host.coordinators.load_one(TRANSACTION_STATE, 0)
        assert host.told() == caplog.messages == []


def test_a_topic_that_clients_cannot_write_to_takes_no_markers() -> None:
    host = Host(is_transactional=False)
    host.find()
    host.told()
    assert end(host) is ErrorCode.NONE
    assert host.told() == []
