"""
Writes docs/metrics.md from the metrics of a node.

    make metrics                # write the page
    python tools/metrics_page.py --check
"""

# ruff: noqa: E501

import asyncio
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from kohort.broker.configs.definitions import BrokerConfig
from kohort.scrape import Family
from kohort.server.metrics.nodes import NodeFigures, membership_families
from kohort.server.node import Node
from kohort.server.settings import Settings
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import request_encoder

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
_MBEAN = re.compile(r" MBean (.+)\.$")

_INTRODUCTION = """\
# Metrics

`kohort serve --metrics-port 9404` serves `/metrics` in Prometheus' text format, `/health` and `/ready`
([operate a broker](howto/operate.md)). Without the option there are no metrics. This page is made from the metrics of a node
(`make metrics`).

Kafka's metrics have the names that the example rules of Prometheus' JMX exporter (`kafka-2_0_0.yml`, `kafka-kraft-3_0_0.yml`) give
their MBeans, so that dashboards and alerts for Kafka work. The table names the MBean, with its keys and the attribute. Metrics
beginning with `kohort_` are Kohort's own; they include some that Kafka has in another form.

- Durations of requests begin when the request is taken from its connection and end when its answer is encoded. The first 64 requests
  of each version of an API are timed, and then every eighth, which counts for eight.
- Quantiles are interpolated in buckets of powers of two and include all requests since the start; Kafka's are a sample that prefers the
  last five minutes. `rate` of `kohort_request_seconds_bucket` gives those of an interval.
- Meters of Kafka have rates; the exporter's rules take their counts, and so does Kohort: `rate(..._total[1m])`.
- `kohort_node_` and `kohort_store_` are those of a node on a store ([cluster](howto/cluster.md)).
- What Kafka has and Kohort does not: metrics of replication between brokers, of threads and their queues (there is one thread), of
  the raft log, of streams groups, load times of share partitions, errors by code (`ErrorsPerSec`) other than those of refused
  heartbeats, and the parts of a request's time. Kafka has no metric of members that did not take
  part in a rebalance in time; Kohort has `kohort_group_coordinator_rebalance_timeouts_total`.
"""

_GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""With an authorizer, whose metrics are on the page, too."""
_TITLES = {
    "kafka": "## Kafka's metrics\n",
    "kohort": "## Kohort's own metrics\n",
    "process": "## The process\n\nThe names that every exporter uses.\n",
}


def collected() -> list[Family]:
    """The metrics of a node with a topic and a request."""

    async def collect() -> list[Family]:
        node = Node(Settings(port=0, config=BrokerConfig(_GUARDED)), asyncio.get_running_loop())
        host, port = await node.start()
        reader, writer = await asyncio.open_connection(host, port)
        topic = m.CreateTopicsRequestCreatableTopic(name="t", num_partitions=1, replication_factor=1)
        create = m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        partition = m.FetchRequestFetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        fetch = m.FetchRequest(topics=[m.FetchRequestFetchTopic(topic="t", partitions=[partition])], max_bytes=1)
        for key, version, request in ((ApiKey.CREATE_TOPICS, 7, create), (ApiKey.FETCH, 12, fetch)):
            writer.write(request_encoder(key, version)(1, "page", request))
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        found = [*node.metrics(), *membership_families(NodeFigures(True, 0.0, 0, 0, 0, 0, 0, 0, 0))]
        writer.close()
        await node.stop()
        return found

    return asyncio.run(collect())


def page(families: Iterable[Family]) -> str:
    """The text of the page."""
    by_prefix: dict[str, list[Family]] = {prefix: [] for prefix in _TITLES}
    for family in families:
        by_prefix[family.name.partition("_")[0]].append(family)
    sections = [_INTRODUCTION]
    for prefix, title in _TITLES.items():
        has_mbean = prefix == "kafka"
        sections += [title, _table(sorted(by_prefix[prefix], key=lambda family: family.name), has_mbean=has_mbean)]
    return "\n".join(sections)


def _table(families: Iterable[Family], *, has_mbean: bool) -> str:
    columns = ["metric", "type", "labels", "meaning", *(["MBean"] if has_mbean else [])]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le", "quantile"})
        found = _MBEAN.search(family.documentation)
        about = family.documentation if found is None else family.documentation[: found.start()]
        cells = [f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels), about]
        if has_mbean:
            assert found is not None, family.name
            cells.append(f"`{found[1].replace('={}', '')}`")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page(collected())
    if sys.argv[1:] == ["--check"]:
        sys.exit(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
