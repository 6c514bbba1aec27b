"""The coordinators that every node hosts: one entry each."""

from typing import Final

from kohort.server.coordinators.group_coordinator import group_coordinator
from kohort.server.coordinators.hosted_coordinator import CoordinatorFactory
from kohort.server.coordinators.transaction_coordinator import transaction_coordinator

COORDINATORS: Final[tuple[CoordinatorFactory, ...]] = (group_coordinator, transaction_coordinator)
