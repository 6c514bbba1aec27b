"""Groups, transactions, topics and records of a broker, and waits for named states of them."""

from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from kohort.client.control import WAIT_S, ControlClient

Record = str | bytes | Mapping[str, Any]
"""A value, or the fields of a record: key, value, headers, partition, timestamp_ms; `_base64` after a name for bytes."""


class States(ABC):
    """The contents of a broker, as the control port tells them. `docs/control-api.json` has the fields of every answer."""

    @property
    @abstractmethod
    def control_client(self) -> ControlClient:
        """For requests to the control port that have no method here."""

    @property
    def scope_name(self) -> str:
        """The scope of what is added; "" outside of scopes."""
        return ""

    # -- groups and transactions -------------------------------------------------------------------------------

    def groups(self) -> list[dict[str, Any]]:
        """All groups, with their kinds and states."""
        return list(self.control_client.get("groups")["groups"])

    def group(self, group: str) -> dict[str, Any]:
        """A group of any kind: state, members with their assignments, committed offsets with lag."""
        found: dict[str, Any] = self.control_client.get("groups", group)
        return found

    def wait_group(
        self,
        group: str,
        *,
        stable: bool = False,
        empty: bool = False,
        state: str | None = None,
        members: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        member: str | None = None,
        offset: int | None = None,
        lag: int | None = None,
        timeout: float = WAIT_S,
    ) -> dict[str, Any]:
        """
        Wait until all that is given is true, and return the group.

        Args:
            stable: every member has the assignment that the group wants. The same as `state="stable"`.
            empty: the group has no members. The same as `state="empty"`.
            state: Kafka's name of a state in snake case, `exists` or `absent`.
            members: their number.
            topic: is assigned with all of its partitions; with `partition`, this one.
            member: has partitions (of the topic): a member id, an instance id or a client id.
            offset: is committed for the topic's partition, or a later one. The partition is 0 by default.
            lag: all committed partitions (of the topic) have at most this lag.

        Raises:
            WaitTimeoutError: after `timeout` seconds; the message and `state` tell how the group is instead.
        """
        state = "stable" if stable else "empty" if empty else state
        wanted = {"members": members, "topic": topic, "partition": partition, "member": member, "offset": offset}
        found: dict[str, Any] = self.control_client.get("groups", group, wait=state, **wanted, lag=lag, timeout=timeout)
        return found

    def transaction(self, transactional_id: str) -> dict[str, Any]:
        """A transactional id: its state, producer id and epoch, partitions."""
        found: dict[str, Any] = self.control_client.get("transactions", transactional_id)
        return found

    def wait_transaction(self, transactional_id: str, state: str, *, timeout: float = WAIT_S) -> dict[str, Any]:
        """
        Wait for a state, such as `ongoing`, `complete_commit`, `complete_abort`, or `complete` for both.

        Raises:
            WaitTimeoutError: after `timeout` seconds; the message and `state` tell the state.
        """
        found: dict[str, Any] = self.control_client.get("transactions", transactional_id, wait=state, timeout=timeout)
        return found

    # -- topics and records ------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
    ) -> dict[str, Any]:
        """
        Create a topic, and return it with its partitions and their leaders.

        Raises:
            ControlError: the broker refuses.
        """
        given = {"partitions": partitions, "replication_factor": replication_factor}
        body: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        body |= {"name": name, "scope": self.scope_name}
        body["configs"] = {key: str(value) for key, value in (configs or {}).items()}
        found: dict[str, Any] = self.control_client.post("topics", body=body)
        return found

    def delete_topic(self, name: str) -> None:
        """Delete a topic. One that is not there is no error."""
        self.control_client.delete("topics", name)

    def wait_topic(self, name: str, *, exists: bool = True, timeout: float = WAIT_S) -> None:
        """Wait until a topic is there, with leaders for all partitions, or until it is gone. Raises: WaitTimeoutError."""
        self.control_client.get("topics", name, wait="exists" if exists else "absent", timeout=timeout)

    def write(self, topic: str, *records: Record) -> list[int]:
        """
        Write records without a client, and return their offsets. Values that are given alone go to partition 0.

        Raises:
            ControlError: the broker refuses.
        """
        body = {"records": [_fields(record) for record in records]}
        answer = self.control_client.post("topics", topic, "records", body=body)
        return [each["offset"] for each in answer["records"]]

    def read(
        self,
        topic: str,
        *,
        partition: int = 0,
        offset: int | None = None,
        limit: int | None = None,
        committed: bool = False,
        wait: int | None = None,
        timeout: float = WAIT_S,
    ) -> list[dict[str, Any]]:
        """
        Read records without a client: 100 from the start of the log.

        Args:
            committed: only up to the first open transaction, and without those of aborted ones.
            wait: wait until there are so many.

        Raises:
            WaitTimeoutError: there are fewer after `timeout` seconds.
            ControlError: there is no such topic.
        """
        answer = self.control_client.get(
            "topics",
            topic,
            "records",
            partition=partition,
            offset=offset,
            limit=limit,
            isolation="read_committed" if committed else None,
            wait=wait,
            timeout=None if wait is None else timeout,
        )
        return list(answer["records"])

    def values(
        self,
        topic: str,
        *,
        partition: int = 0,
        committed: bool = False,
        wait: int | None = None,
        timeout: float = WAIT_S,
    ) -> list[str]:
        """The values of the first 100 records of a partition as texts. Raises: as `read`."""
        records = self.read(topic, partition=partition, committed=committed, wait=wait, timeout=timeout)
        return [_value(record) for record in records]


def _fields(record: Record) -> Mapping[str, Any]:
    if isinstance(record, str):
        return {"value": record}
    if isinstance(record, bytes):
        return {"value_base64": b64encode(record).decode()}
    return record


def _value(record: dict[str, Any]) -> str:
    if "value_base64" in record:
        return b64decode(record["value_base64"]).decode(errors="replace")
    return str(record.get("value", ""))
