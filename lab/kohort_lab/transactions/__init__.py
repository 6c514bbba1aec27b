"""
A simulation of transactions from one seed: coordinators, data partitions, groups, clients, and the faults between them.

`simulate_transactions` runs it. `SimulatedBroker` is the node, `SimulatedProducer` a client, `Ledger` what clients were told.
"""

from kohort_lab.transactions.broker import SimulatedBroker
from kohort_lab.transactions.ledger import Ledger
from kohort_lab.transactions.producer import SimulatedProducer
from kohort_lab.transactions.simulation import TransactionFaults, TransactionSimulation, simulate_transactions
from kohort_lab.transactions.store import SimulatedLog, SimulatedStore

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
