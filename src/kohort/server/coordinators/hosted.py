"""The coordinators that every node hosts: one entry each."""

from typing import Final

from kohort.server.coordinators.group_coordinator import GroupCoordinator
from kohort.server.coordinators.interface import CoordinatorFactory
from kohort.server.coordinators.transaction_coordinator import TransactionCoordinator

COORDINATORS: Final[tuple[CoordinatorFactory, ...]] = (GroupCoordinator, TransactionCoordinator)
