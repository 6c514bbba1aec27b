"""A broker that others have started, such as a container: tests of several processes can share it."""

from kohort.client.cluster import Client
from kohort.client.control import ControlClient
from kohort.testing.kit import Kit
from kohort.testing.scope import Scope
from kohort.wire import messages
from kohort.wire.apis import ApiKey


class RunningBroker(Kit):
    """
    Args:
        bootstrap: HOST:PORT for clients.
        control: HOST:PORT of the control port.
        token: where the control port needs one.
    """

    def __init__(self, bootstrap: str, control: str, token: str | None = None) -> None:
        self._bootstrap = bootstrap
        self._control_client = ControlClient(control, token)

    def __repr__(self) -> str:
        return f"RunningBroker({self._bootstrap!r}, {self.control!r})"

    @property
    def bootstrap(self) -> str:
        return self._bootstrap

    @property
    def cluster_id(self) -> str:
        with Client(self._bootstrap) as client:
            return str(client.send(ApiKey.METADATA, messages.MetadataRequest(topics=())).cluster_id)

    @property
    def control(self) -> str:
        return self._control_client.address

    @property
    def control_client(self) -> ControlClient:
        return self._control_client

    def scope(self, name: str) -> Scope:
        """A part of the broker for one test: names that no other test has, and an end of what it made."""
        return Scope(self, name)
