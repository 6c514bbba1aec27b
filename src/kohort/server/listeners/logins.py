"""The objects that the authentications of all listeners of a process share."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from kohort.security.credentials import SCRAM_HASHES, Credentials, ScramCredential
from kohort.server.listeners.pending import PendingConnections

if TYPE_CHECKING:
    from kohort.security.sasl.scram import Keep, ScramUsers


class Logins:
    """
    Args:
        elsewhere: `elsewhere(work, done)` runs `work` on another thread, then `done` on that of the event loop.
        now_ms: the time.
        credentials: the users that the brokers know.
        has_users: whether users were given at the start.

    Attributes:
        pending: the connections that are not authenticated yet.
        successes, failures: of first authentications.
        repeated_successes, repeated_failures: of re-authentications.
        expired: connections that were closed because their session had ended.
        scram_users: of all listeners.
    """

    def __init__(
        self,
        elsewhere: Callable[[Callable[[], None], Callable[[], None]], None],
        now_ms: Callable[[], int],
        credentials: Credentials,
        *,
        has_users: bool = False,
    ) -> None:
        self.elsewhere = elsewhere
        self.now_ms = now_ms
        self.credentials = credentials
        self.has_users = has_users
        self.pending = PendingConnections()
        self.successes = self.failures = 0
        self.repeated_successes = self.repeated_failures = 0
        self.expired = 0
        self._prepared: set[str] = set()

    @cached_property
    def scram_users(self) -> "ScramUsers":
        # Imported late: a start without SASL does without it.
        from secrets import randbits

        from kohort.security.sasl.scram import ScramUsers

        return ScramUsers(self.credentials, randbits)

    def prepare(self, mechanisms: Iterable[str]) -> None:
        """Derive the credentials of users that were given at the start, one after the other between other works."""
        new = [each for each in mechanisms if each in SCRAM_HASHES and each not in self._prepared]
        self._prepared.update(new)
        self._prepare(chain.from_iterable(map(self.scram_users.first_derivations, new)))

    def _prepare(self, works: "Iterator[tuple[Callable[[], ScramCredential], Keep]]") -> None:
        work = next(works, None)
        if work is None:
            return
        derive, keep = work
        derived: list[ScramCredential] = []

        def done() -> None:
            keep(derived[0])
            self._prepare(works)

        self.elsewhere(lambda: derived.append(derive()), done)

    def count_success(self, *, is_first: bool) -> None:
        if is_first:
            self.successes += 1
        else:
            self.repeated_successes += 1

    def count_failure(self, *, is_first: bool) -> None:
        if is_first:
            self.failures += 1
        else:
            self.repeated_failures += 1
