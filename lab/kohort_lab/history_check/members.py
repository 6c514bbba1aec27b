"""The members of the group: which clients they are, and their replacement by members of the other protocol."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kohort_lab.history_check.clients import MEMBERS, Job
from kohort_lab.restarted import RestartedProcess

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
MIGRATION: Final = "migration"
PROTOCOLS: Final = (CLASSIC, CONSUMER, MIGRATION)


class Members:
    """
    The members, each in a process. Every other one of confluent-kafka is static.

    Args:
        protocol: one of `PROTOCOLS`. With `migration`, all begin with the classic protocol.
    """

    def __init__(
        self, protocol: str, count: int, bootstrap: str, directory: Path, topic: str, session_timeout_ms: int
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._session_timeout_ms = session_timeout_ms
        self._protocols = [CLASSIC if protocol == MIGRATION else protocol] * count
        self._next = 0
        self.replaced = 0
        self.processes: Sequence[RestartedProcess] = [
            RestartedProcess(self._job(number).command, directory, f"member-{number}") for number in range(count)
        ]

    def replace_next(self) -> str:
        """
        Stop one member, and start one of the other protocol in its place; returns a line about it.

        One after the other goes over to the new protocol, so that the group is upgraded, and when all have done so, one after
        the other goes back.
        """
        number = self._next
        self._next = (number + 1) % len(self._protocols)
        before = self._protocols[number]
        after = self._protocols[number] = CONSUMER if before == CLASSIC else CLASSIC
        self.processes[number].replace(self._job(number).command)
        self.replaced += 1
        return f"member {number} goes over from the {before} to the {after} protocol"

    def _job(self, number: int) -> Job:
        protocol = self._protocols[number]
        clients = list(MEMBERS[protocol])
        is_static = number > 0 and number % len(MEMBERS[CLASSIC]) == 0
        return Job(
            role="member",
            name=f"member-{number}",
            client=clients[number % len(clients)],
            bootstrap=self._bootstrap,
            topic=self._topic,
            group=self._topic,
            protocol=protocol,
            instance=f"{self._topic}-{number}" if is_static else "",
            session_timeout_ms=self._session_timeout_ms,
        )
