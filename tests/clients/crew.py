"""A group of members, each in a process of its own."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.clients.lines import Lines
from tests.clients.waiting import PATIENCE_S, wait_until

MORTAL = "session.timeout.ms=6000"
"""A setting for a member that will be killed, so that its session expires soon. Other members have ten times as long."""
_SCRIPT = Path(__file__).with_name("member.py")


class Member:
    """One process."""

    def __init__(self, client: str, command: Sequence[str]) -> None:
        self.client = client
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self._lines = Lines(self.process)

    def assigned(self) -> list[int]:
        """The latest assignment."""
        events = [json.loads(line) for line in self._lines.all()]
        return next((event["assigned"] for event in reversed(events) if "assigned" in event), [])

    def assignments(self) -> list[list[int]]:
        """All assignments, in order."""
        events = [json.loads(line) for line in self._lines.all()]
        return [event["assigned"] for event in events if "assigned" in event]

    def values(self) -> list[str]:
        """The values of the records that it has read."""
        events = [json.loads(line) for line in self._lines.all()]
        return [event["read"][2] for event in events if "read" in event]

    def leave(self) -> None:
        """Stop the member, which leaves the group."""
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0

    def kill(self) -> None:
        """Kill the member, which does not leave the group."""
        self.process.kill()
        self.process.wait(PATIENCE_S)


class Crew:
    """
    Members of one group that reads one topic. A context manager: whoever is left at its end is killed.

    Attributes:
        topic: its name; a test sets it if the members subscribe by a pattern.
        partitions: of the topic; a test sets it when they become more.
        members: those that live, in the order in which they joined.
        gone: those that have left or died.
    """

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int) -> None:
        self._words = (bootstrap, group, topic)
        self.group = group
        self.topic = topic
        self.partitions = partitions
        self.members: list[Member] = []
        self.gone: list[Member] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for member in self.members:
            member.kill()

    def join(self, client: str, *settings: str) -> Member:
        """Start a member with one of the clients of `member.py`."""
        return self.join_as(client, (sys.executable, str(_SCRIPT), client, *self._words, *settings))

    def join_as(self, client: str, command: Sequence[str]) -> Member:
        """Start a member by a command that prints what `member.py` prints."""
        self.members.append(Member(client, command))
        return self.members[-1]

    def leave(self, member: Member) -> None:
        self._remove(member)
        member.leave()

    def die(self, member: Member) -> None:
        """Kill a member. The group notices when its session has expired, see `MORTAL`."""
        self._remove(member)
        member.kill()

    def settle(self, *sizes: int) -> None:
        """
        Wait until every partition has exactly one member.

        Args:
            sizes: how many partitions the members have then, in ascending order.
        """
        wait_until(lambda: self._shares() == list(sizes), what=lambda: f"{sizes}; {self}")

    def values(self) -> list[str]:
        """The values that all members have read, also members that have ended."""
        return sorted(value for member in (*self.members, *self.gone) for value in member.values())

    def __str__(self) -> str:
        return ", ".join(f"{each.client} has {each.assigned()}, ended {each.process.poll()}" for each in self.members)

    def _shares(self) -> list[int] | None:
        """The number of partitions of each member; None while a partition has no member or two."""
        assigned = [member.assigned() for member in self.members]
        whole = sorted(partition for partitions in assigned for partition in partitions)
        return sorted(map(len, assigned)) if whole == list(range(self.partitions)) else None

    def _remove(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)
