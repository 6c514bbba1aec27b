"""
A simulation of transactions from one seed: coordinators, data partitions, groups, clients, and the faults between them.

`simulate_transactions` runs it. `SimulatedBroker` is the node, `SimulatedProducer` a client, `Ledger` what clients were told.
"""

from kohort.testing.transactions.broker import SimulatedBroker
from kohort.testing.transactions.ledger import Ledger
from kohort.testing.transactions.producer import SimulatedProducer
from kohort.testing.transactions.simulation import TransactionFaults, TransactionSimulation, simulate_transactions
from kohort.testing.transactions.store import SimulatedLog, SimulatedStore

__all__ = [
    "Ledger",
    "SimulatedBroker",
    "SimulatedLog",
    "SimulatedProducer",
    "SimulatedStore",
    "TransactionFaults",
    "TransactionSimulation",
    "simulate_transactions",
]
