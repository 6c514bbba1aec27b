"""Metrics of share groups at the leaders of partitions: sessions, records in flight, acknowledgements, dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from kohort.broker.broker import Broker
from kohort.broker.shares.record_states import ACCEPT, REJECT, RELEASE, RENEW
from kohort.server.metrics.figures import QUANTILES, by, figure, summary

_KINDS: Final = {"Accept": ACCEPT, "Release": RELEASE, "Reject": REJECT, "Renew": RENEW}


def share_families(broker: Broker) -> Iterator[Metric]:
    """
    Source: Kafka ShareGroupMetrics, SharePartitionMetrics, ShareSessionCache. Those of a share partition or of a group appear
    with it, as in Kafka.
    """
    shares = [api.shares for api in broker.apis.values()]
    cache = "kafka.server:type=ShareSessionCache,name="
    sessions = sum(len(each.sessions) for each in shares)
    partitions = sum(each.sessions.partitions for each in shares)
    yield from figure("", f"{cache}ShareSessionsCount", "Share sessions.", sessions)
    yield from figure("", f"{cache}SharePartitionsCount", "Partitions of share sessions.", partitions)
    yield from figure("", f"{cache}ShareSessionEvictionsPerSec", "Share sessions that were evicted: none ever is.", 0)
    groups = "kafka.server:type=ShareGroupMetrics,name="
    about = "Acknowledged records."
    acknowledged = [(name, sum(each.acknowledged[kind] for each in shares)) for name, kind in _KINDS.items()]
    yield from figure("", f"{groups}RecordAcknowledgementsPerSec,ackType={{}}", about, *by("ackType", acknowledged))
    about = "Time to read the state of a share partition."
    loads = broker.share_services.loads
    quantiles = [float(loads.quantile_ms(fraction)) for fraction in QUANTILES]
    yield summary(f"{groups}PartitionLoadTimeMs", about, [({}, loads.count, quantiles)])
    yield from _partition_families(broker)
    letters = broker.dead_letters
    for name, about, counts in (
        ("RecordCount", "Dead letters that were written.", letters.written),
        ("TotalProduceRequestsPerSec", "Batches of dead letters.", letters.requests),
        ("FailedProduceRequestsPerSec", "Batches of dead letters that failed.", letters.failed),
    ):
        if counts:
            values = by("group", list(counts.items()))
            yield from figure("", f"{groups}DeadLetterQueue{name},group={{}}", about, *values)


def _partition_families(broker: Broker) -> Iterator[Metric]:
    led = [each for api in broker.apis.values() for each in api.shares.leader.all() if each.records is not None]
    if not led:
        return
    in_flight, batches, expired = [], [], []
    for each in led:
        topic, index = each.partition.topic_partition
        labels = {"group": each.key.group_id, "topic": topic, "partition": str(index)}
        assert each.records is not None, "it is loaded"
        in_flight.append((labels, each.records.in_flight))
        batches.append((labels, each.records.runs.batch_count))
        expired.append((labels, each.expired_locks))
    prefix = "kafka.server:type=SharePartitionMetrics,name="
    where = "group={},topic={},partition={}"
    about = "Records in flight."
    yield from figure("kohort_share_records_in_flight", f"{prefix}InFlightMessageCount,{where}", about, *in_flight)
    yield from figure("", f"{prefix}InFlightBatchCount,{where}", "Batches in flight.", *batches)
    about = "Records whose lock has run out."
    yield from figure("", f"{prefix}AcquisitionLockTimeoutPerSec,{where}", about, *expired)
