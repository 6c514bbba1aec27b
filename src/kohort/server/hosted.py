"""The coordinators that every node hosts: one entry each."""

from typing import Final

from kohort.server.coordinators import CoordinatorFactory
from kohort.server.group_coordinator import GroupCoordinator
from kohort.server.transaction_coordinator import TransactionCoordinator

COORDINATORS: Final[tuple[CoordinatorFactory, ...]] = (GroupCoordinator, TransactionCoordinator)
