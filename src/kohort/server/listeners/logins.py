"""What the authentications of all listeners of a process share."""

from collections.abc import Callable

from kohort.security.credentials import Credentials
from kohort.server.listeners.pending import PendingConnections


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
