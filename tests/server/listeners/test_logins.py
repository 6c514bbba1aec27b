"""What the authentications of all listeners share."""

from collections.abc import Callable

from kohort.security.credentials import SCRAM_HASHES
from kohort.server.listeners.logins import Logins
from tests.security.sasl.exchanges import Users

SHA_256, SHA_512 = SCRAM_HASHES
PASSWORDS = {"alice": "one", "bob": "two"}


def test_credentials_of_the_first_users_are_derived_one_after_the_other() -> None:
    """Other works of the thread, such as handshakes of TLS, wait for one of them at most; a mechanism is prepared once."""
    waiting: list[tuple[Callable[[], None], Callable[[], None]]] = []
    users = Users(PASSWORDS, {(name, each): PASSWORDS[name] for name in PASSWORDS for each in SCRAM_HASHES})
    logins = Logins(lambda work, done: waiting.append((work, done)), lambda: 0, users, has_users=True)
    logins.prepare(["PLAIN"])
    assert waiting == []
    logins.prepare(["PLAIN", SHA_512])
    logins.prepare([SHA_512])
    done_works = 0
    while waiting:
        assert len(waiting) == 1
        work, done = waiting.pop()
        work()
        done()
        done_works += 1
    assert done_works == len(PASSWORDS)
    for name, password in PASSWORDS.items():
        assert logins.scram_users.derived(SHA_512, name, password) is not None
        assert logins.scram_users.derived(SHA_256, name, password) is None
