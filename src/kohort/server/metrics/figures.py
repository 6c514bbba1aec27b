"""
Figures of a node as families of prometheus-client: under Kohort's name, under Kafka's, or under both.

Kafka's metrics have the names that the JMX exporter's example rules give their MBeans, so that dashboards for Kafka work. An
MBean `kafka.server:type=ReplicaManager,name=LeaderCount` becomes `kafka_server_replicamanager_leadercount`. The rules write
names in lower case, replace `PerSec` by `_total`, and take meters by their count. The help of each metric ends with its MBean.

Imported with `--metrics-port` only: importing prometheus-client costs a third of the budget of a start.

Source: example rules kafka-2_0_0.yml and kafka-kraft-3_0_0.yml of the JMX exporter; names of MBeans of Apache Kafka 4.2.1.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.samples import Sample

from kohort.runtime.metrics import Histogram

Labels = Mapping[str, str]
Value = tuple[Labels, float]

_BOUNDS_MS: Final = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000)
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_QUANTILE_NAMES: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
_SUFFIXES: Final = {"counter": "_total", "summary": "_count", "gauge": ""}


def exporter_name(mbean: str) -> str:
    """
    The name of a metric, without the suffix of its samples.

    Args:
        mbean: `domain:type=T,name=N`, or `domain:type=T` and an attribute behind a slash for Kafka's own metrics.
    """
    bean, _, attribute = mbean.partition("/")
    domain, _, keys = bean.partition(":")
    pairs = dict(pair.split("=", 1) for pair in keys.split(",") if "=" in pair)
    name = pairs.get("name", attribute)
    name = re.sub(r"PerSec\w*$", "", name)
    name = re.sub(r"Percent\w*$", "_percent", name)
    return re.sub(r"[^a-z0-9]+", "_", f"{domain}_{pairs['type']}_{name}".lower())


def kafka_help(mbean: str, about: str) -> str:
    """The help of a metric of Kafka."""
    return f"{about} MBean {mbean.replace('/', ' ')}."


def figure(
    own: str, mbean: str, about: str, *values: Value | float, kafka: Iterable[Value | float] = ()
) -> Iterator[Metric]:
    """
    One figure.

    Args:
        own: Kohort's name; that of a counter ends with `_total`. Empty for a figure that is Kafka's only.
        mbean: Kafka's; empty for a figure that is Kohort's only. Meters whose name ends with `PerSec` and attributes that end
            with `-total` are counters, and other meters and timers are taken by their count.
        values: numbers, or pairs of labels and a number.
        kafka: the values under Kafka's name, if its labels or its unit are others.
    """
    if own:
        yield _metric(own, about, "counter" if own.endswith("_total") else "gauge", values)
    if mbean:
        kind = "counter" if re.search(r"PerSec\b|-total$", mbean) else "summary" if "Rate" in mbean else "gauge"
        yield _metric(exporter_name(mbean), kafka_help(mbean, about), kind, kafka or values)


def _metric(name: str, about: str, kind: str, values: Iterable[Value | float]) -> Metric:
    family = Metric(name.removesuffix("_total"), about, kind)
    sample = family.name + _SUFFIXES[kind]
    for value in values:
        labels, number = value if isinstance(value, tuple) else ({}, value)
        family.samples.append(Sample(sample, dict(labels), number))
    return family


def by(label: str, values: Iterable[tuple[str, float]]) -> list[Value]:
    """The values of a figure with one label."""
    return [({label: text}, value) for text, value in values]


def summary(mbean: str, about: str, values: Iterable[tuple[Labels, int, Sequence[float]]]) -> Metric:
    """Kafka's quantiles and count of durations; `_sum`, which the exporter does not have, is left out."""
    family = Metric(exporter_name(mbean), kafka_help(mbean, about), "summary")
    for labels, count, quantiles in values:
        family.samples.append(Sample(f"{family.name}_count", dict(labels), count))
        for name, value in zip(_QUANTILE_NAMES, quantiles, strict=True):
            family.samples.append(Sample(family.name, {**labels, "quantile": name}, value))
    return family


def times(own: str, about: str, histogram: Histogram) -> Metric:
    """Durations in milliseconds, in buckets."""
    counts = histogram.count_up_to(_BOUNDS_MS)
    bounded = [(str(bound), float(count)) for bound, count in zip(_BOUNDS_MS, counts, strict=True)]
    buckets = [*bounded, ("+Inf", float(histogram.count))]
    return HistogramMetricFamily(own, about, buckets, sum_value=histogram.sum_ms)


class LongFamily(NamedTuple):
    """
    A family of many metrics, whose samples are made while the text is made: a node may have 100 000 partitions.

    Args:
        make_samples: makes them, in order.
    """

    name: str
    type: str
    documentation: str
    make_samples: Callable[[], Iterator[Sample]]

    @property
    def samples(self) -> Iterator[Sample]:
        return self.make_samples()
