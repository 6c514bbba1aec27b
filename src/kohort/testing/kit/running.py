"""A broker that others have started, such as a container: tests of several processes can share it."""

from typing import Any

from kohort.client.control import ControlClient, ControlError
from kohort.testing.kit.kit import Kit
from kohort.testing.kit.scope import Scope


class RunningBroker(Kit):
    """
    Args:
        control: HOST:PORT of the control port.
        bootstrap: HOST:PORT for clients; by default what the first listener of each broker advertises.
        token: where the control port needs one.
    """

    def __init__(self, control: str, *, bootstrap: str | None = None, token: str | None = None) -> None:
        self._control_client = ControlClient(control, token)
        self._bootstrap = bootstrap

    def __repr__(self) -> str:
        return f"RunningBroker({self.control!r})"

    @property
    def bootstrap(self) -> str:
        if self._bootstrap is None:
            brokers = [each for each in self._overview()["brokers"] if each["is_running"]]
            if not brokers:
                raise ControlError("no broker runs behind the control port")
            self._bootstrap = ",".join(next(iter(each["listeners"].values())) for each in brokers)
        return self._bootstrap

    @property
    def cluster_id(self) -> str:
        return str(self._overview()["cluster_id"])

    def _overview(self) -> dict[str, Any]:
        found: dict[str, Any] = self._control_client.get("")
        return found

    @property
    def control(self) -> str:
        return self._control_client.address

    @property
    def control_client(self) -> ControlClient:
        return self._control_client

    def scope(self, name: str) -> Scope:
        """A part of the broker for one test: names that no other test has, and an end of what it made."""
        return Scope(self, name)
