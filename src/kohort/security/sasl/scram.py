"""
SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows a password, and the broker that it knows its keys.

Clients with `tokenauth=true` log in with a delegation token: its id is the name, its HMAC the password.

A user that does not exist is asked for a proof like any other. Its salt is made up, and always the same. Kafka refuses the
first message and so shows which users exist.

Source: RFC 5802, RFC 7677; KIP-48, KIP-84; Kafka ScramSaslServer, ScramServerCallbackHandler.
"""

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from kohort.model.limits import DERIVED_CREDENTIALS_MAX
from kohort.model.principals import Principal
from kohort.security.credentials import (
    ITERATIONS_MIN,
    SCRAM_HASHES,
    Credentials,
    ScramCredential,
    scram_credential,
)
from kohort.security.sasl.mechanism import OTHER_IDENTITY, Answer, AuthenticationError, Identity, Work
from kohort.security.sasl.scram_messages import (
    ClientFirst,
    base36,
    read_final,
    read_first,
    server_final,
    server_first,
)

_RANDOM_BITS: Final = 130
"""Of a nonce, and of a salt that is made up, as in Kafka."""
_SECRET_BITS: Final = 256
_OF_TOKENS: Final = "tokenauth"


Keep: TypeAlias = Callable[[ScramCredential], None]


class Login(NamedTuple):
    """
    What the client's first message names.

    Attributes:
        identity: who the client is if its proof is right; None if nobody has this name.
        secret: a credential, or a password from which it is derived.
    """

    identity: Identity | None
    secret: ScramCredential | str | None


class ScramUsers:
    """
    The users of SCRAM, those that do not exist included. All listeners share them: a salt is the same at each.

    Args:
        random_bits: an unpredictable number of so many bits.
    """

    def __init__(self, credentials: Credentials, random_bits: Callable[[int], int]) -> None:
        self._credentials = credentials
        self._random_bits = random_bits
        self._secret = random_bits(_SECRET_BITS).to_bytes(_SECRET_BITS // 8, "big")
        self._derived: OrderedDict[tuple[str, str], tuple[str, ScramCredential]] = OrderedDict()
        """By mechanism and name: the password and what was derived from it."""

    def new_nonce(self) -> str:
        return base36(self._random_bits(_RANDOM_BITS))

    def login(self, mechanism: str, first: ClientFirst) -> Login:
        """Find whom a message names, at this moment."""
        if first.extensions.get(_OF_TOKENS, "").lower() == "true":
            token = self._credentials.token(first.user)
            if token is None:
                return Login(None, None)
            return Login(Identity(token.owner._replace(is_token=True), token.expires_at_ms), token.secret)
        secret = self._credentials.scram(first.user, mechanism)
        return Login(None if secret is None else Identity(Principal(first.user)), secret)

    def made_up(self, mechanism: str, name: str) -> ScramCredential:
        """The credential of a name that nobody has. No proof is right for it."""
        digest = hmac.digest(self._secret, f"{mechanism} {name}".encode(), SCRAM_HASHES[mechanism])
        return ScramCredential(self._salt(mechanism, name), digest, digest, ITERATIONS_MIN)

    def derived(self, mechanism: str, name: str, password: str) -> ScramCredential | None:
        """The credential of a password if it was derived before."""
        found = self._derived.get((mechanism, name))
        if found is None or not hmac.compare_digest(found[0].encode(), password.encode()):
            return None
        self._derived.move_to_end((mechanism, name))
        return found[1]

    def derive(self, mechanism: str, name: str, password: str) -> Callable[[], ScramCredential]:
        """The work that derives the credential of a password."""
        salt = self._salt(mechanism, name)
        return lambda: scram_credential(mechanism, password, salt)

    def first_derivations(self, mechanism: str) -> Iterator[tuple[Callable[[], ScramCredential], Keep]]:
        """
        The works that derive the credentials of the first users, each with what keeps its result.

        Done before the first login, they leave no difference between the times of a user and of a name that nobody has.
        """
        for name in islice(self._credentials.users_with_password(), DERIVED_CREDENTIALS_MAX // len(SCRAM_HASHES)):
            secret = self._credentials.scram(name, mechanism)
            if isinstance(secret, str):
                yield self.derive(mechanism, name, secret), partial(self.keep, mechanism, name, secret)

    def keep(self, mechanism: str, name: str, password: str, credential: ScramCredential) -> None:
        """Keep a derived credential for the next logins."""
        self._derived[mechanism, name] = password, credential
        if len(self._derived) > DERIVED_CREDENTIALS_MAX:
            self._derived.popitem(last=False)

    def _salt(self, mechanism: str, name: str) -> bytes:
        """The salt of a password that is stored as it is, or of one that does not exist. Nobody can tell them apart."""
        digest = hmac.digest(self._secret, f"salt {mechanism} {name}".encode(), "sha256")
        return base36(int.from_bytes(digest, "big") >> (256 - _RANDOM_BITS)).encode()


class ScramExchange:
    """An exchange of two messages of the client."""

    def __init__(self, mechanism: str, users: ScramUsers) -> None:
        self._mechanism = mechanism
        self._hash = SCRAM_HASHES[mechanism]
        self._users = users
        self._first: ClientFirst | None = None
        self._identity: Identity | None = None
        self._credential: ScramCredential | None = None
        self._server_first = ""
        self._nonce = ""

    def respond(self, token: bytes, _now_ms: int) -> Answer | Work:
        """Take the first message, then the last one."""
        if self._first is None:
            return self._begin(token)
        return self._finish(token, self._first)

    def _begin(self, token: bytes) -> Answer | Work:
        first = self._first = read_first(token)
        if first.authorization_id not in ("", first.user):
            raise AuthenticationError(OTHER_IDENTITY, f"user {first.user!r}")
        self._identity, secret = self._users.login(self._mechanism, first)
        if secret is None:
            secret = self._users.made_up(self._mechanism, first.user)
        if isinstance(secret, ScramCredential):
            return self._challenge(first, secret)
        known = self._users.derived(self._mechanism, first.user, secret)
        if known is not None:
            return self._challenge(first, known)
        password = secret

        def take(credential: ScramCredential, _now_ms: int) -> Answer:
            self._users.keep(self._mechanism, first.user, password, credential)
            return self._challenge(first, credential)

        return Work(self._users.derive(self._mechanism, first.user, password), take)

    def _challenge(self, first: ClientFirst, credential: ScramCredential) -> Answer:
        if credential.iterations < ITERATIONS_MIN:
            raise AuthenticationError(reason=f"the credential of user {first.user!r} has too few iterations")
        self._credential = credential
        self._nonce = first.nonce + self._users.new_nonce()
        self._server_first = server_first(self._nonce, credential.salt, credential.iterations)
        return Answer(self._server_first.encode())

    def _finish(self, token: bytes, first: ClientFirst) -> Answer:
        credential = self._credential
        assert credential is not None, "the first message has been answered"
        final = read_final(token)
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        signature = hmac.digest(credential.stored_key, signed, self._hash)
        # A proof of another length is wrong whatever its bytes are.
        client_key = bytes(one ^ other for one, other in zip(final.proof, signature, strict=False))
        has_proof = hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), credential.stored_key)
        is_right = (
            has_proof
            and len(final.proof) == len(signature)
            and hmac.compare_digest(final.nonce, self._nonce)
            and final.channel == first.header.encode()
        )
        if not is_right or self._identity is None:
            raise AuthenticationError(reason=f"user {first.user!r}")
        return Answer(server_final(hmac.digest(credential.server_key, signed, self._hash)).encode(), self._identity)
