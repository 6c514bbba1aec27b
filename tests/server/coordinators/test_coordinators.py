"""How a node hosts coordinators: leadership of their partitions, changes of the cluster, requests, markers, the end."""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric

from kohort.broker.ports import Handler
from kohort.machine.shard import EndTransaction
from kohort.model.errors import ErrorCode
from kohort.model.ids import TRANSACTION_STATE
from kohort.model.image import ClusterImage, ImageDelta
from kohort.runtime.ports import PartitionLog
from kohort.runtime.processors import InlineProcessor
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.interface import CoordinatorEnvironment
from kohort.server.coordinators.local_runner import Leads
from kohort.server.metrics.families import gauge
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness


class Registrar:
    """A coordinator of `__transaction_state` that notes what it is told."""

    topic = TRANSACTION_STATE

    def __init__(self, environment: CoordinatorEnvironment) -> None:
        self.environment = environment
        self.told: list[Any] = []

    def handlers(self, _leads: Leads | None = None) -> Mapping[ApiKey, Handler]:
        return {ApiKey.LIST_TRANSACTIONS: lambda *_: m.ListTransactionsResponse(unknown_state_filters=["asked"])}

    def marker_writer(self, partition: int, end: EndTransaction, done: Callable[[ErrorCode], None], /) -> None:
        self.told.append(("end", partition, end.producer_id))
        done(ErrorCode.NOT_COORDINATOR)

    verification = None

    def load(self, partition: int, log: PartitionLog, leader_epoch: int) -> None:
        self.told.append(("load", partition, str(log.topic_partition), leader_epoch))

    def unload(self, partition: int, leader_epoch: int | None) -> None:
        self.told.append(("unload", partition, leader_epoch))

    def on_image(self, image: ClusterImage, delta: ImageDelta) -> None:
        deleted = [topic.name for topic in delta.deleted]
        self.told.append(("image", sorted(topic.name for topic in image.topics()), deleted))

    loading = 0

    def metrics(self) -> Iterator[Metric]:
        yield gauge("kohort_transaction_coordinator_ids", "Transactional ids.", 7)

    def close(self) -> None:
        self.told.append("close")


class Host:
    """A broker that hosts one coordinator."""

    def __init__(self) -> None:
        self.harness = Harness(transaction_state_log_num_partitions="2")
        node = self.harness.node
        self.coordinators = Coordinators(node.defer)
        self.registrar: Registrar | None = None
        self.coordinators.start(
            [self._make],
            CoordinatorEnvironment(
                self.harness.broker,
                node.clock,
                node.call_later,
                lambda: InlineProcessor(node.wheel, node.defer, node.call_soon),
            ),
        )
        for topic in self.hosted:
            self.harness.coordinators[topic] = self.coordinators.marker_writer(topic)

    def _make(self, environment: CoordinatorEnvironment) -> Registrar:
        self.registrar = Registrar(environment)
        return self.registrar

    @property
    def hosted(self) -> list[str]:
        return [topic for topic in (TRANSACTION_STATE, "__consumer_offsets") if self.coordinators.is_hosted(topic)]

    def told(self) -> list[Any]:
        """What the coordinator was told since the last call."""
        assert self.registrar is not None
        told, self.registrar.told = self.registrar.told, []
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
        assert host.told() == [
            ("load", 0, f"{TRANSACTION_STATE}-0", 0),
            ("load", 1, f"{TRANSACTION_STATE}-1", 0),
            ("image", [TRANSACTION_STATE], []),
        ]
        host.harness.create("t")
        assert host.told() == [("image", [TRANSACTION_STATE, "t"], [])]
        for name in ("t", TRANSACTION_STATE):
            request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name=name)], timeout_ms=1)
            host.harness.ask(ApiKey.DELETE_TOPICS, request)
    assert host.told() == [
        ("image", [TRANSACTION_STATE], ["t"]),
        ("unload", 0, None),
        ("unload", 1, None),
        ("image", [], [TRANSACTION_STATE]),
    ]
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
        assert host.told() == [("load", 1, f"{TRANSACTION_STATE}-1", 5)]
        partition.leader_epoch = 3
        host.coordinators.load()
    assert host.told() == []
    assert caplog.messages == [
        f"coordinator.new_epoch partition={TRANSACTION_STATE}-1 leader_epoch=5 broker=1",
        f"coordinator.stale_epoch_ignored partition={TRANSACTION_STATE}-1 leader_epoch=3 known=5",
    ]


def test_its_apis_are_served_and_its_markers_are_its_own() -> None:
    host = Host()
    (answer,) = host.harness.ask(ApiKey.LIST_TRANSACTIONS, m.ListTransactionsRequest()).unknown_state_filters
    assert answer == "asked"
    request = m.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    shown = {api.api_key for api in host.harness.ask(ApiKey.API_VERSIONS, request, version=4).api_keys}
    assert ApiKey.LIST_TRANSACTIONS in shown
    host.find()
    host.told()
    topic = m.WriteTxnMarkersRequestWritableTxnMarkerTopic(name=TRANSACTION_STATE, partition_indexes=[1])
    marker = m.WriteTxnMarkersRequestWritableTxnMarker(producer_id=7, producer_epoch=0, topics=[topic])
    response = host.harness.ask(ApiKey.WRITE_TXN_MARKERS, m.WriteTxnMarkersRequest(markers=[marker]))
    assert response.markers[0].topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert host.told() == [("end", 1, 7)]
    assert [family.name for family in host.coordinators.metrics() if family] == ["kohort_transaction_coordinator_ids"]
    host.coordinators.close()
    assert host.told() == ["close"]
