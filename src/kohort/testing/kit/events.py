"""Events on demand: what happens to a cluster in the course of months, at the word of a test."""

from typing import Any

from kohort.client.control import ControlClient


class Events:
    """
    One method an event; each returns what has happened.

    Every method raises `ControlError` if there is no such broker, group, member or partition, or if it cannot happen now.
    """

    def __init__(self, control: ControlClient) -> None:
        self._control = control

    def _happen(self, event: str, **given: object) -> dict[str, Any]:
        body = {name: value for name, value in given.items() if value is not None}
        happened: dict[str, Any] = self._control.post("events", event, body=body)
        return happened

    def stop_broker(self, broker: int) -> dict[str, Any]:
        """Stop one of several brokers: its leaders and coordinators move, its connections close."""
        return self._happen("stop_broker", broker=broker)

    def kill_broker(self, broker: int) -> dict[str, Any]:
        """Stop a broker without a word: its connections are reset."""
        return self._happen("kill_broker", broker=broker)

    def start_broker(self, broker: int) -> dict[str, Any]:
        """Start a broker that was stopped, at the same port. Leaders stay where they are."""
        return self._happen("start_broker", broker=broker)

    def restart_broker(self, broker: int) -> dict[str, Any]:
        """Kill a broker and start it again."""
        return self._happen("restart_broker", broker=broker)

    def unload_coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> dict[str, Any]:
        """Unload the coordinator of a group or a transactional id: it answers NOT_COORDINATOR until `load_coordinator`."""
        return self._happen("unload_coordinator", group=group, transactional_id=transactional_id)

    def load_coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> dict[str, Any]:
        """Load a coordinator that was unloaded."""
        return self._happen("load_coordinator", group=group, transactional_id=transactional_id)

    def move_coordinator(
        self, *, group: str | None = None, transactional_id: str | None = None, broker: int | None = None
    ) -> dict[str, Any]:
        """Move a coordinator to another broker; with one broker it is loaded again."""
        return self._happen("move_coordinator", group=group, transactional_id=transactional_id, broker=broker)

    def expire_member(self, group: str, member: str) -> dict[str, Any]:
        """Let the session of a member end now: a member id, an instance id or a client id."""
        return self._happen("expire_member", group=group, member=member)

    def remove_member(self, group: str, member: str) -> dict[str, Any]:
        """Remove a member as an administrator does."""
        return self._happen("remove_member", group=group, member=member)

    def force_rebalance(self, group: str) -> dict[str, Any]:
        """Let the members of a classic group join again, or raise the epoch of a consumer group."""
        return self._happen("force_rebalance", group=group)

    def fence_producer(self, transactional_id: str, *, timeout: float | None = None) -> dict[str, Any]:
        """Give a transactional id a new epoch; the producer that has it is fenced. `timeout`: of the next transaction."""
        return self._happen("fence_producer", transactional_id=transactional_id, timeout=timeout)

    def hang_transaction(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Write a record of a transaction that nobody ends."""
        return self._happen("hang_transaction", topic=topic, partition=partition)

    def raise_leader_epoch(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Begin a new leader epoch of a partition."""
        return self._happen("raise_leader_epoch", topic=topic, partition=partition)

    def change_leader(self, topic: str, partition: int = 0, broker: int | None = None) -> dict[str, Any]:
        """Give a partition another leader."""
        return self._happen("change_leader", topic=topic, partition=partition, broker=broker)

    def remove_leader(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Leave a partition without a leader, until `change_leader`."""
        return self._happen("remove_leader", topic=topic, partition=partition)

    def take_offline(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Let the log of a partition fail, until `bring_online`."""
        return self._happen("take_offline", topic=topic, partition=partition)

    def bring_online(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """End `take_offline`."""
        return self._happen("bring_online", topic=topic, partition=partition)

    def fill_disk(self) -> dict[str, Any]:
        """Let the logs of all partitions in use fail, until `empty_disk`."""
        return self._happen("fill_disk")

    def empty_disk(self) -> dict[str, Any]:
        """End `fill_disk`, and every `take_offline`."""
        return self._happen("empty_disk")
