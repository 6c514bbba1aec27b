"""What a test can do with a broker, wherever the broker runs."""

from abc import ABC, abstractmethod
from typing import Unpack

from kohort.client.control import ControlClient
from kohort.testing.faults import Fault
from kohort.testing.fields import FaultFields


class Kit(ABC):
    """
    A broker, or a part of one for a single test. Every method blocks; in asyncio call them by `asyncio.to_thread`.

    Every method of the control port raises `ControlError` if the port refuses the request or does not answer.
    """

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """HOST:PORT for clients; with several brokers the addresses of all of them, separated by commas."""

    @property
    @abstractmethod
    def cluster_id(self) -> str:
        """The id of the cluster."""

    @property
    @abstractmethod
    def control(self) -> str:
        """HOST:PORT of the control port."""

    @property
    @abstractmethod
    def control_client(self) -> ControlClient:
        """For requests to the control port that have no method here."""

    @property
    def scope_name(self) -> str:
        """The scope of what is added; "" outside of scopes."""
        return ""

    def fault(self, **fields: Unpack[FaultFields]) -> Fault:
        """
        Add a fault: filters, a trigger, and one effect. Without a trigger it hits one request.

        For example `fault(api="OffsetCommit", group="billing", error="COORDINATOR_LOAD_IN_PROGRESS", times=2)`.
        """
        return Fault(self.control_client, self.control_client.post("faults", body={**fields, "scope": self.scope_name}))

    def faults(self) -> list[Fault]:
        """The faults of this scope, in the order in which they are asked; also those that are spent."""
        found = self.control_client.get("faults", scope=self.scope_name or None)["faults"]
        return [Fault(self.control_client, view) for view in found]
