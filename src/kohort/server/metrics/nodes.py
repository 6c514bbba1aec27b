"""Metrics of a node that shares its store with others."""

from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client.metrics_core import Metric

from kohort.server.metrics.figures import figure


class NodeFigures(NamedTuple):
    """
    Attributes:
        lease_s: seconds until the lease ends without a renewal.
        partitions: that the node is to lead.
        waiting: of these, those for which other nodes may answer yet.
        view: the end offset of the catalog that the node has applied.
        lost: how often the node has lost its row or the catalog, and has joined anew.
        fenced: appends that were refused because another node leads the log.
        statements, batches: of the database: committed appends of a turn, and the record batches in them.
    """

    is_controller: bool
    lease_s: float
    partitions: int
    waiting: int
    view: int
    lost: int
    fenced: int
    statements: int
    batches: int


def membership_families(figures: NodeFigures) -> Iterator[Metric]:
    """The lease of the node, what it leads, and its appends to the database."""
    for name, about, value in (
        ("node_is_controller", "1 if this node leads the catalog, else 0.", int(figures.is_controller)),
        ("node_lease_seconds", "Time until the lease of this node ends without a renewal.", figures.lease_s),
        ("node_partitions", "Partitions that this node is to lead.", figures.partitions),
        ("node_partitions_waiting", "Of these, those for which other nodes may answer yet.", figures.waiting),
        ("node_catalog_offset", "End offset of the catalog that this node has applied.", figures.view),
        (
            "node_lost_total",
            "How often this node has lost its lease to another one, and has joined anew.",
            figures.lost,
        ),
        ("store_fenced_appends_total", "Appends refused because another node leads the log.", figures.fenced),
        ("store_statements_total", "Committed statements, each with the appends of a turn.", figures.statements),
        ("store_batches_total", "Record batches in these statements.", figures.batches),
    ):
        yield from figure(f"kohort_{name}", "", about, value)
