"""The actions of a test on a broker, wherever the broker runs."""

from abc import abstractmethod
from typing import Any, Unpack

from kohort.client.control import WAIT_S, WaitTimeoutError
from kohort.testing.kit.clock import Clock
from kohort.testing.kit.events import Events
from kohort.testing.kit.faults import Fault, Hold, Snapshot
from kohort.testing.kit.fields import FaultFields, FilterFields, HoldFields
from kohort.testing.kit.states import States


class Kit(States):
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
    def events(self) -> Events:
        """The events at the word of a test, such as `events.expire_member("billing", "worker-1")`."""
        return Events(self.control_client)

    @property
    def clock(self) -> Clock:
        """The clock of a broker with virtual time, such as `clock.advance(45)`."""
        return Clock(self.control_client)

    def snapshot(self) -> Snapshot:
        """Take a snapshot of a broker in memory. Raises: ControlError: it has a data directory, or there are too many."""
        return Snapshot(self.control_client, self.control_client.post("snapshots", body={"scope": self.scope_name}))

    def restore(self, snapshot: Snapshot) -> None:
        """The same as `snapshot.restore()`."""
        snapshot.restore()

    def reset(self) -> None:
        """
        Begin with a clean broker at the same address: no topics, groups, faults or holds. Snapshots stay.

        Raises:
            ControlError: the broker has a data directory.
        """
        self.control_client.post("reset")

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

    def hold(self, **fields: Unpack[HoldFields]) -> Hold:
        """
        Hold requests, their answers (`at="reply"`), or a point inside the broker, until they are released.

        For example `hold(api="EndTxn", transactional_id="billing")` or `hold(point="flush", topic="orders")`.
        """
        return Hold(self.control_client, self.control_client.post("holds", body={**fields, "scope": self.scope_name}))

    def holds(self) -> list[Hold]:
        """The holds of this scope; also those that have ended."""
        found = self.control_client.get("holds", scope=self.scope_name or None)["holds"]
        return [Hold(self.control_client, view) for view in found]

    def requests(
        self,
        *,
        wait: int | None = None,
        timeout: float = WAIT_S,
        limit: int | None = None,
        **filters: Unpack[FilterFields],
    ) -> list[dict[str, Any]]:
        """
        The requests that the broker was sent, oldest first, with their answers.

        Args:
            wait: wait until so many match, for at most `timeout` seconds.
            limit: of the last ones only; 100 by default.

        Raises:
            WaitTimeoutError: fewer match in time. The message and `state` have the last requests.
        """
        given: dict[str, Any] = {**filters, "wait": wait, "limit": limit, "since": self._since}
        if wait is not None:
            given["timeout"] = timeout
        if isinstance(apis := given.get("api"), list):
            given["api"] = ",".join(map(str, apis))
        try:
            return list(self.control_client.get("requests", **given)["requests"])
        except WaitTimeoutError as error:
            raise WaitTimeoutError(
                "\n".join((f"{error}:", *map(request_line, error.state))), state=error.state
            ) from None

    @property
    def _since(self) -> int | None:
        """The number of the first request that is shown."""
        return None

    def keep_journal(self, *, is_on: bool = True) -> None:
        """Whether the broker keeps the requests that it is sent, for `requests`."""
        self.control_client.send("PUT", ("journal",), body={"is_on": is_on})


def request_line(entry: dict[str, Any]) -> str:
    """An entry of the journal in a line."""
    outcome = ",".join(entry.get("errors", ())) or entry.get("outcome", "waiting")
    fault = f" by {entry['fault']}" if entry.get("fault") else ""
    return f"  {entry['api']} {entry['version']} of {entry['client_id'] or 'a client'}: {outcome}{fault}"
