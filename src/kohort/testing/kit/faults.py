"""Handles of what was added at the control port: faults, holds and snapshots."""

from types import TracebackType
from typing import Any, Self

from kohort.client.control import WAIT_S, ControlClient


class _Handle:
    """Something at the control port with an id. As a context manager it is removed at the end."""

    _PATH = ""

    def __init__(self, control: ControlClient, view: dict[str, Any]) -> None:
        self._control = control
        self.id: str = view["id"]
        self._shown = view

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def state(self) -> dict[str, Any]:
        """All fields, as they are now. Raises: ControlError: the broker has forgotten it, or does not answer."""
        found: dict[str, Any] = self._control.get(self._PATH, self.id)
        return found

    def remove(self) -> None:
        """Remove it. Its counts can still be read. Raises: ControlError: the broker does not answer."""
        self._control.delete(self._PATH, self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()


class Fault(_Handle):
    """A fault of a broker."""

    _PATH = "faults"

    @property
    def hits(self) -> int:
        """The number of requests that it has hit; also after its removal."""
        return int(self.state["hits"])

    @property
    def calls(self) -> int:
        """The number of requests that have matched, whether they were hit or not."""
        return int(self.state["calls"])

    @property
    def is_spent(self) -> bool:
        """Whether it hits no more."""
        return bool(self.state["is_spent"])

    def wait(self, hits: int = 1, timeout: float = WAIT_S) -> int:
        """
        Wait until it has so many hits, and return their number.

        Raises:
            WaitTimeoutError: it has fewer after `timeout` seconds, or was removed.
        """
        return int(self._control.get(self._PATH, self.id, wait=hits, timeout=timeout)["hits"])


class Hold(_Handle):
    """Requests, answers or a point inside the broker that stop until they are released, at the latest with the context."""

    _PATH = "holds"

    @property
    def waiting(self) -> int:
        """The number of requests that are held now."""
        return int(self.state["waiting"])

    @property
    def held(self) -> list[dict[str, Any]]:
        """The requests that are held now: API, client, connection."""
        return list(self.state["held"])

    @property
    def hits(self) -> int:
        """The number of requests that have been held so far."""
        return int(self.state["hits"])

    def wait(self, count: int = 1, timeout: float = WAIT_S) -> int:
        """
        Wait until so many are held, and return their number. The lease of the hold begins anew.

        Raises:
            WaitTimeoutError: fewer are held after `timeout` seconds, or the hold has ended.
        """
        return int(self._control.get(self._PATH, self.id, wait=count, timeout=timeout)["waiting"])

    def release(self, count: int | None = None) -> None:
        """Let the first ones go; without `count` all of them, and hold no more."""
        self._control.post(self._PATH, self.id, "release", body={} if count is None else {"count": count})


class Snapshot(_Handle):
    """The state of a broker in memory: topics, records, groups, transactions."""

    _PATH = "snapshots"

    def restore(self) -> None:
        """
        Let the broker go on with it. Connections are cut and leader epochs rise, so that clients notice; faults and holds stay.

        Raises:
            ControlError: the snapshot was removed, or belongs to an earlier start.
        """
        self._control.post(self._PATH, self.id, "restore")
