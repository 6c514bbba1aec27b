"""
The credentials of users, and the port through which an authentication asks for them.

Source: RFC 5802, section 3; Kafka ScramCredential, ScramFormatter, ScramMechanism, TokenInformation.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from kohort.model.principals import Principal

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each SCRAM mechanism."""
ITERATIONS_MIN: Final = 4_096
"""Iterations of every SCRAM credential at least; those that Kohort makes itself have as many."""
ITERATIONS_MAX: Final = 16_384


class ScramCredential(NamedTuple):
    """
    The part of a password that a broker stores. The password cannot be computed from it; `repr()` shows nothing of it.

    Attributes:
        salt: of the password.
        stored_key: verifies the proof of a client.
        server_key: signs the broker's last message.
        iterations: of the key derivation.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class Token(NamedTuple):
    """
    A delegation token, as an authentication needs it.

    Attributes:
        owner: the user that a client with the token is.
        expires_at_ms: when the sessions of the token end.
        secret: the password of the token: its HMAC in base64.
    """

    owner: Principal
    expires_at_ms: int
    secret: str

    def __repr__(self) -> str:
        return f"Token(owner={self.owner}, expires_at_ms={self.expires_at_ms})"


class Credentials(Protocol):
    """The users that a broker knows. An answer says what holds at the moment of the call."""

    def password(self, user: str, /) -> str | None:
        """The password of a user of PLAIN, or None. The users of `sasl.jaas.config` need not be among them."""

    def scram(self, user: str, mechanism: str, /) -> ScramCredential | str | None:
        """The credential of a user for a SCRAM mechanism, or a password from which it is derived, or None."""

    def users_with_password(self) -> Iterable[str]:
        """The users for whom `scram` may answer with a password."""

    def token(self, token_id: str, /) -> Token | None:
        """A delegation token, also one that has expired and is not removed yet, or None."""


def keys_of(mechanism: str, salted_password: bytes) -> tuple[bytes, bytes]:
    """StoredKey and ServerKey of a salted password."""
    # Imported late, here and below: a start without SCRAM does without OpenSSL's hashes.
    import hashlib
    import hmac

    name = SCRAM_HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted_password, b"Server Key", name)


def scram_credential(mechanism: str, password: str, salt: bytes, iterations: int = ITERATIONS_MIN) -> ScramCredential:
    """
    Derive the credential of a password. It takes some milliseconds, so an event loop leaves it to another thread.

    A password of the command line that is not UTF-8 stands for its bytes.
    """
    import hashlib

    salted_password = hashlib.pbkdf2_hmac(
        SCRAM_HASHES[mechanism], password.encode(errors="surrogateescape"), salt, iterations
    )
    return ScramCredential(salt, *keys_of(mechanism, salted_password), iterations)
