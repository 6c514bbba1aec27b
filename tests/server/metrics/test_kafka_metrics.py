"""Kafka's metrics: names by the exporter's rules, each of an MBean of Apache Kafka, and numbers that follow the requests."""

import json
import re
from pathlib import Path

import pytest

from kohort.broker.partitions.replicas import NO_LEADER, PartitionState
from kohort.scrape import Family
from kohort.server.metrics.families import replica_families
from kohort.server.metrics.figures import exporter_name
from kohort.server.metrics.latency import LAST, TIMED_AT_FIRST, TIMED_EVERY, LatencyHistogram
from kohort.server.node import Node
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import batch, produce_request
from tests.server.clients import Client, commit, with_topic
from tests.server.metrics.test_metrics import numbers, played

RECORDED = Path(__file__).parents[2] / "data" / "mbeans-4.4.0.json"
MBEAN = re.compile(r"MBean (\S+?)(?: (\S+))?\.$")

# fmt: off
NAMES = {  # Source: the rules kafka-kraft-3_0_0.yml of the JMX exporter
    "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec":  "kafka_server_brokertopicmetrics_messagesin",
    "kafka.server:type=ReplicaManager,name=LeaderCount":           "kafka_server_replicamanager_leadercount",
    "kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce": "kafka_network_requestmetrics_totaltimems",
    "kafka.log:type=Log,name=Size,topic=t,partition=0":            "kafka_log_log_size",
    "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups":
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
    "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent":
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "kafka.server:type=group-coordinator-metrics/offset-commit-count":
        "kafka_server_group_coordinator_metrics_offset_commit_count",
    "kafka.log:type=LogCleaner,name=max-clean-time-secs":          "kafka_log_logcleaner_max_clean_time_secs",
}
# fmt: on


@pytest.mark.parametrize("mbean", NAMES)
def test_names_by_the_rules_of_the_exporter(mbean: str) -> None:
    assert exporter_name(mbean) == NAMES[mbean]


def families(node: Node) -> list[Family]:
    return [family for family in node.metrics() if family.name.startswith("kafka_")]


def test_each_metric_is_one_of_apache_kafka() -> None:
    """The recording has the MBeans of a node of 4.4.0 with their attributes (`record_mbeans`)."""
    recorded: dict[str, list[str]] = json.loads(RECORDED.read_text())
    found: list[Family] = []

    async def story(node: Node, client: Client) -> None:
        await with_topic(client)
        found.extend(families(node))

    played(story)
    assert len(found) > 80
    missing = []
    for family in found:
        match = MBEAN.search(family.documentation)
        assert match is not None, family.documentation
        bean, attribute = re.sub(r"=\{\}", "", match[1]), match[2]
        keys = {"quantile", *(part for part in bean.split(",") if "=" not in part)}
        labels = {label for sample in family.samples for label in sample.labels}
        if not bean.startswith("kafka.server:type=BrokerTopicMetrics"):
            assert labels <= keys, f"{family.name} has the labels {labels}"
        attributes = recorded.get(bean)
        if attributes is None or (attribute and attribute not in attributes):
            missing.append((bean, attribute))
    assert not missing


def test_replicas_that_are_out_of_sync_and_leaders_that_are_not_preferred() -> None:
    """Source: Kafka Partition.isUnderReplicated (leaders only), ReplicationControlManager.imbalancedPartitions."""
    states = [
        PartitionState(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1),
        PartitionState(replicas=(1, 2, 3), isr=(2, 3), leader=2),
        PartitionState(replicas=(2, 3), isr=(3,), leader=3),
        PartitionState(replicas=(3, 1), isr=(), leader=NO_LEADER),
    ]
    found = {family.name: family.samples[0].value for family in replica_families(states)}
    assert found == {
        "kafka_server_replicamanager_underreplicatedpartitions": 2,
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount": 3,
    }


def test_numbers_follow_the_requests() -> None:
    async def story(node: Node, client: Client) -> None:
        await with_topic(client)
        for number in range(3):
            await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {0: batch(b"x" * number)}))
        await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {0: b"no batch"}))
        await client.ask(ApiKey.PRODUCE, 9, produce_request("t", {7: batch(b"no partition")}))
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = m.FetchRequestFetchTopic(topic="t", partitions=[partition])
        got = await client.ask(ApiKey.FETCH, 12, m.FetchRequest(topics=[topic], max_bytes=1 << 20, min_bytes=1))
        size = len(got.responses[0].partitions[0].records)
        await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(1))
        shown = await numbers(node)
        prefix = "kafka_server_brokertopicmetrics"
        for label in ("", '{topic="t"}'):
            is_total = not label
            assert shown[f"{prefix}_messagesin_total{label}"] == 3
            assert shown[f"{prefix}_bytesin_total{label}"] == shown[f"{prefix}_bytesout_total{label}"] == size
            assert shown[f"{prefix}_totalproducerequests_total{label}"] == 4 + is_total, "and one of no topic"
            assert shown[f"{prefix}_totalfetchrequests_total{label}"] == 1
            assert shown[f"{prefix}_failedfetchrequests_total{label}"] == 0
        assert shown['kafka_network_requestmetrics_requests_total{request="Produce",version="9"}'] == 5
        assert shown['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == 5
        assert shown['kohort_request_seconds_count{api="Produce"}'] == 5
        assert 0 < shown['kohort_request_seconds_sum{api="Produce"}'] < 60
        assert shown['kohort_request_seconds_bucket{api="Produce",le="+Inf"}'] == 5
        assert shown['kafka_log_log_logendoffset{partition="0",topic="t"}'] == 3
        assert shown["kafka_server_replicamanager_leadercount"] == shown["kafka_server_replicamanager_partitioncount"]
        labels = '{listener="PLAINTEXT",networkProcessor="0"}'
        assert shown[f"kafka_server_socket_server_metrics_connection_count{labels}"] == shown["kohort_connections"] == 1
        purgatory = "kafka_server_delayedoperationpurgatory_numdelayedoperations"
        assert shown[f'{purgatory}{{delayedOperation="Fetch"}}'] == 0
        assert shown["kafka_controller_kafkacontroller_globaltopiccount"] == 2
        assert shown["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 1
        assert shown['kafka_server_group_coordinator_metrics_group_count{protocol="classic"}'] == 1
        request = m.DeleteTopicsRequest(topics=[m.DeleteTopicsRequestDeleteTopicState(name="t")], timeout_ms=5_000)
        await client.ask(ApiKey.DELETE_TOPICS, 6, request)
        shown = await numbers(node)
        assert shown[f"{prefix}_messagesin_total"] == 3, "a counter does not fall when a topic is deleted"
        assert f'{prefix}_messagesin_total{{topic="t"}}' not in shown

    played(story)


def test_every_answered_request_is_counted_once_however_it_is_answered() -> None:
    """At once, after a flush, in steps, and requests that waited in the purgatory."""

    async def story(node: Node, client: Client) -> None:
        await with_topic(client)
        await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=None))
        names = [m.MetadataRequestTopic(name=f"none-{number}") for number in range(2_000)]
        await client.ask(ApiKey.METADATA, 12, m.MetadataRequest(topics=names, allow_auto_topic_creation=False))
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = m.FetchRequestFetchTopic(topic="t", partitions=[partition])
        await client.ask(ApiKey.FETCH, 12, m.FetchRequest(topics=[topic], max_bytes=1, min_bytes=1, max_wait_ms=1))
        for offset in range(5):
            await client.ask(ApiKey.OFFSET_COMMIT, 9, commit(offset))
        routes = node._connections.routes
        assert {route.api_key: (route.requests, route.latency.count) for route in routes} == {
            route.api_key: (route.requests, route.requests) for route in routes
        }
        assert sum(route.requests for route in routes if route.api_key is ApiKey.METADATA) == 2

    played(story)


def test_of_many_requests_every_eighth_is_timed_and_counts_for_eight() -> None:
    async def story(node: Node, client: Client) -> None:
        for _ in range(TIMED_AT_FIRST + 100 * TIMED_EVERY):
            client.send(ApiKey.API_VERSIONS, 0, m.ApiVersionsRequest())
        for _ in range(TIMED_AT_FIRST + 100 * TIMED_EVERY):
            await client.receive(ApiKey.API_VERSIONS, 0)
        (route,) = node._connections.routes
        assert route.latency.count == route.requests == TIMED_AT_FIRST + 100 * TIMED_EVERY

    played(story)


# fmt: off
DURATIONS = [  # durations in seconds, a bound in seconds, how many are below it
    ([0.0],                    2**-14, 1),
    ([0.00001, 0.1],           0.125,  2),
    ([0.00001, 0.1],           0.0625, 1),
    ([0.5],                    0.5,    0),
    ([0.5],                    1.0,    1),
    ([100.0, 1e12],            64.0,   0),
    ([100.0, 1e12],            float("inf"), 2),
]
QUANTILES = [  # durations, fraction, the least and the most that may be answered
    ([],                       0.5,  0.0,   0.0),
    ([0.001] * 100,            0.5,  0.0009, 0.002),
    ([0.001] * 99 + [1.5],     0.99, 0.0009, 0.002),
    ([0.001] * 98 + [1.5] * 2, 0.99, 1.0,    2.0),
    ([0.001] * 98 + [1.5] * 2, 1.0,  1.0,    2.0),
]
# fmt: on


@pytest.mark.parametrize(("durations", "bound", "count"), DURATIONS)
def test_buckets(durations: list[float], bound: float, count: int) -> None:
    histogram = LatencyHistogram()
    for each in durations:
        histogram.record(each)
    assert dict(histogram.bounded())[bound] == count
    assert histogram.count == len(durations)
    assert histogram.seconds == pytest.approx(sum(durations))
    assert len(histogram.counts) == LAST + 1


@pytest.mark.parametrize(("durations", "fraction", "least", "most"), QUANTILES)
def test_quantiles(durations: list[float], fraction: float, least: float, most: float) -> None:
    histogram = LatencyHistogram()
    for each in durations:
        histogram.record(each)
    (found,) = histogram.quantiles([fraction])
    assert least <= found <= most
