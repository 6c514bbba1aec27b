"""
A simulation of nodes that share a store, from one seed and in virtual time: the database, the nodes, clients, and the faults
between them.

`simulate_nodes` runs it. Members, controllers, leaderships and catalogs are those of the product. `Database` has rows and
statements with the fences of `kohort.storage.postgres`, `SimulatedNode` is a node, `History` what clients were told.
"""

from kohort_lab.nodes.database import Database
from kohort_lab.nodes.history import History, NodeGuaranteeError
from kohort_lab.nodes.node import SimulatedNode
from kohort_lab.nodes.simulation import NodeFaults, NodeSimulation, simulate_nodes
from kohort_lab.nodes.world import Process, World

__all__ = [
    "Database",
    "History",
    "NodeFaults",
    "NodeGuaranteeError",
    "NodeSimulation",
    "Process",
    "SimulatedNode",
    "World",
    "simulate_nodes",
]
