"""
Exchanges of Apache Kafka 4.4.0 with clients that speak SASL, byte for byte, and a broker in this process that plays them.

A line of the recording is a connection. Its random and secret parts are known: the server's nonces are in its answers, and the
passwords follow. So the answers of SCRAM are compared byte for byte, too.
"""

import gzip
import json
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from kohort.model.principals import ANONYMOUS, Principal
from kohort.security.credentials import ScramCredential, Token, scram_credential
from kohort.security.sasl.access_tokens import Unsecured
from kohort.security.sasl.authenticator import Authenticator
from kohort.security.sasl.listener import SaslConfig, SaslListener
from kohort.security.sasl.scram import ScramUsers
from kohort.security.sasl.signed_tokens import Signed, SigningKey, read_keys
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.generated.gradual import drain
from kohort.wire.headers import api_versions_downgrade, read_request_header
from kohort.wire.readers import request_reader
from tests.broker.harness import Asker, Harness
from tests.security.sasl.exchanges import Users

DATA = Path(__file__).parents[2] / "data" / "security" / "sasl-transcripts.jsonl.gz"
SALT = b"salt-of-the-tests"
PLAIN_USERS = {name: f"{name}-secret" for name in ("admin", "alice", "bob", "carol")}
SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
SCRAM_USERS = {
    ("sally", SHA_256): ("sally-secret", 4_096),
    ("sally", SHA_512): ("sally-secret", 4_096),
    ("many", SHA_256): ("pw", 16_384),
    ("only-256", SHA_256): ("pw", 4_096),
    ("a,b=c", SHA_256): ("pw", 4_096),
    ("changing", SHA_256): ("old", 4_096),
    ("gone", SHA_256): ("pw", 4_096),
    ("brief", SHA_256): ("pw", 4_096),
}
"""Passwords and iterations."""
STORED = (
    ("nosalt", 4_096, (1,)),
    ("a,b=c", 4_096, (1,)),
    ("bounds", 16_384, (1,)),
    ("sally", 4_096, (1, 2)),
    ("short", 4_096, (1,)),
    ("only-256", 4_096, (1,)),
    ("many", 16_384, (1,)),
    ("changing", 4_096, (1,)),
)
"""What DescribeUserScramCredentials found, in its order: users, iterations and numbers of mechanisms."""
FAILURE_DELAY_MS = 100
MECHANISMS = {
    "SASL_PLAINTEXT": ("PLAIN", SHA_512, SHA_256),
    "REAUTH": ("PLAIN", SHA_256),
    "OAUTH": ("OAUTHBEARER",),
    "JWKS": ("OAUTHBEARER",),
}


Row = Mapping[str, Any]


@cache
def recording() -> tuple[Row, Mapping[str, Row]]:
    """What holds for all exchanges, and the exchanges by listener and id."""
    with gzip.open(DATA, "rt") as lines:
        head, *rows = map(json.loads, lines)
    return head, {f"{row['listener']}: {row['id']}": row for row in rows}


class Api:
    """The API layer of a broker without groups: frames in, frames out."""

    def __init__(self, **settings: Any) -> None:
        self.harness = Harness(**settings)
        for user, iterations, mechanisms in STORED:
            for mechanism in mechanisms:
                upsertion = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
                    name=user, mechanism=mechanism, iterations=iterations, salt=SALT, salted_password=b"x"
                )
                request = m.AlterUserScramCredentialsRequest(deletions=[], upsertions=[upsertion])
                self.harness.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, request)

    def answer(self, frame: bytes, principal: Principal = ANONYMOUS) -> bytes:
        api_key, version, correlation_id, _, body = read_request_header(frame)
        api = API_KEYS[api_key]
        if api is ApiKey.API_VERSIONS and version > self.harness.broker.versions[api][1]:
            return api_versions_downgrade(correlation_id, self.harness.broker.versions[api][1])
        if api is ApiKey.LIST_GROUPS:
            return response_encoder(api, version)(correlation_id, m.ListGroupsResponse())
        answers: list[Any] = []
        request = request_reader(api, version)(frame, body)
        asker = Asker(version, principal=principal, later=self.harness.node.call_soon)
        response = self.harness.broker.apis[1].handlers[api](request, asker, answers.append)
        response = drain(response) if hasattr(response, "send") else response
        self.harness.node.settle()
        return response_encoder(api, version)(correlation_id, answers[0] if response is None else response)


@cache
def credential(user: str, mechanism: str) -> ScramCredential:
    password, iterations = SCRAM_USERS[user, mechanism]
    return scram_credential(mechanism, password, SALT, iterations)


def scram_messages(row: Row) -> Iterator[tuple[str, str]]:
    """The client's first messages of SCRAM and the server's answers."""
    texts = [(step["dir"], token_text(step)) for step in row["steps"]]
    for (sender, asked), (_, answer) in pairwise(texts):
        if sender == "client" and answer.startswith("r="):
            yield asked, answer


def token_text(step: Mapping[str, Any]) -> str:
    """The token of a step as text."""
    says = step.get("says")
    token = says.get("token") if isinstance(says, dict) else None
    means = says.get("means") if isinstance(says, dict) else None
    if token is None and isinstance(means, dict):
        token = means.get("token", means.get("message"))
    return token if isinstance(token, str) else ""


TOKEN = "TRHUoxe_Rn6bEuazqWOC9Q"
SHORT_TOKEN = "kiU8bHn_R8iy8ID5Dr2kgw"
"""A token whose HMAC is not in the recording."""
SESSION_MS = {"SASL_PLAINTEXT": 0, "REAUTH": 3_000, "OAUTH": 0, "JWKS": 0}


class Keys:
    """The key set of the recording."""

    def find(self, name: str | None) -> Sequence[SigningKey]:
        keys = read_keys(json.dumps(recording()[0]["jwks"]).encode())
        return [key for key in keys if name in (None, key.name)]


class Player:
    """The broker's side of one recorded connection, in virtual time."""

    def __init__(self, row: Row, users: Users, api: Api) -> None:
        head, _ = recording()
        name = row["listener"]
        self.now_ms = _began_at_ms(row) or head["recorded_at_ms"]
        self._nonces: list[int] = []
        self.users = users
        self.api = api
        self.session_ends_at_ms: int | None = None
        self._principal: Principal | None = None
        self.authenticator: Authenticator | None = None
        if name not in MECHANISMS:
            return
        config = SaslConfig(
            MECHANISMS[name],
            users=PLAIN_USERS,
            failure_delay_ms=FAILURE_DELAY_MS,
            session_ms=dict.fromkeys(MECHANISMS[name], SESSION_MS[name]),
            tokens=Signed(Keys(), ("kafka",), "https://issuer.test") if name == "JWKS" else Unsecured(),
        )
        scram_users = ScramUsers(users, lambda bits: self._nonces.pop(0) if bits == 130 and self._nonces else 1)
        for asked, answer in scram_messages(row):
            client_nonce = asked.split(",r=")[1].split(",")[0]
            nonce, salt, _ = answer.split(",")
            self._nonces.append(int(nonce[len("r=") + len(client_nonce) :], 36))
            user = asked.split("n=")[1].split(",")[0]
            if user in users.tokens:
                secret = users.tokens[user].secret
                for mechanism in (SHA_256, SHA_512):
                    known = scram_credential(mechanism, secret, b64decode(salt[len("s=") :]))
                    scram_users.keep(mechanism, user, secret, known)
        self.authenticator = Authenticator(SaslListener(config, users, scram_users), api.answer)

    def receive(self, frame: bytes) -> tuple[bytes, bool, bool]:
        """Take a frame without its size; the answer, whether the connection is closed, and whether that is delayed."""
        if self.authenticator is None:
            return self.api.answer(frame), False, False
        step = self.authenticator.receive(frame, self.now_ms)
        while step.work is not None:
            step = self.authenticator.resume(step.work(), self.now_ms)
        if step.principal is not None:
            self._principal = step.principal
            self.session_ends_at_ms = step.session_ends_at_ms
        if step.passes:
            return self.api.answer(frame, self._principal or ANONYMOUS), False, False
        assert step.delay_ms in (0, FAILURE_DELAY_MS)
        return step.answer, step.closes, step.delay_ms > 0


def users_of(row: Row) -> Users:
    """The users that exist when a recorded connection begins."""
    scram: dict[tuple[str, str], ScramCredential | str] = {each: credential(*each) for each in SCRAM_USERS}
    now_ms = _began_at_ms(row) or recording()[0]["recorded_at_ms"]
    lifetime_ms = next(filter(None, _lifetimes(row)), 0)
    secret = b64encode(bytes.fromhex(_hmac())).decode()
    tokens = {
        TOKEN: Token(Principal("bob"), now_ms + lifetime_ms, secret),
        SHORT_TOKEN: Token(Principal("bob"), now_ms + lifetime_ms, "not recorded"),
    }
    if row["id"].endswith("after deletion"):
        del scram["gone", SHA_256]
    if row["id"] == "token removed":
        tokens.clear()
    return Users({}, scram, tokens)


@cache
def _hmac() -> str:
    _, rows = recording()
    steps = rows["SASL_PLAINTEXT: token may not ask for tokens"]["steps"]
    return next(
        str(step["says"]["request"]["hmac"])
        for step in steps
        if isinstance(step["says"], dict) and "hmac" in step["says"].get("request", {})
    )


def _lifetimes(row: Row) -> Iterator[int]:
    for step in row["steps"]:
        says = step.get("says")
        if isinstance(says, dict) and "sessionLifetimeMs" in says.get("response", {}):
            yield says["response"]["sessionLifetimeMs"]


def _began_at_ms(row: Row) -> int | None:
    """The time of a recorded connection with tokens of OAUTHBEARER: the end of the token that it accepted, less its life."""
    if row["id"] == "OAUTHBEARER jwks expired within the skew":
        return 1_795_649_576_000
    if row["listener"] not in ("OAUTH", "JWKS"):
        return None
    for step, answer in pairwise(row["steps"]):
        lifetime_ms = next(filter(None, _lifetimes({"steps": [answer]})), 0)
        if lifetime_ms and _is_message(step):
            message = bytes.fromhex(step["says"]["request"]["authBytes"])
            claims = message.split(b"earer ")[1].split(b".")[1]
            ends_at = json.loads(b64decode(claims.translate(bytes.maketrans(b"-_", b"+/")) + b"=="))["exp"]
            return int(ends_at * 1_000 - lifetime_ms)
    return None


def _is_message(step: Mapping[str, Any]) -> bool:
    says = step.get("says")
    return isinstance(says, dict) and "authBytes" in says.get("request", {})
