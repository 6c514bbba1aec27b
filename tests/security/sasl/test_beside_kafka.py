"""Random messages of every mechanism: a live Apache Kafka and Kohort give the same answers."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from joserfc import jws

from kohort.testing.kafka import UnavailableKafkaError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.conftest import LONG, NIGHTLY
from tests.security.sasl.beside_kafka import (
    ISSUER,
    KEYS,
    MECHANISMS,
    PASSWORDS,
    SHA_256,
    Answer,
    Connection,
    Kafka,
    answer_of,
    listeners,
)
from tests.security.sasl.exchanges import Client
from tests.security.sasl.scram_client import final, first
from tests.security.sasl.tokens import private_key, unsecured

pytestmark = [NIGHTLY, pytest.mark.java, pytest.mark.maven]

EXCHANGES = 10_000 if LONG else 1_000
LIFETIME_SLACK_MS = 5_000
"""The answers are given one after the other."""
_BYTES = b"\x00\x01\t\r ,=A~\x7f.-/+\xc3\xff"


@pytest.fixture
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    try:
        node = Kafka(tmp_path_factory.mktemp("kafka"))
    except UnavailableKafkaError as error:
        pytest.skip(str(error))
    yield node
    node.stop()


def changed(message: bytes, rng: Random) -> bytes:
    """The message with one or two bytes put in, replaced or left out."""
    data = bytearray(message)
    for _ in range(rng.randint(1, 2)):
        place = rng.randint(0, len(data))
        match rng.randrange(3):
            case 0:
                data[place:place] = bytes([rng.choice(_BYTES)])
            case 1:
                data[place : place + 1] = bytes([rng.choice(_BYTES)])
            case _:
                del data[place : place + rng.randint(1, 3)]
    return bytes(data)


def some_claims(base: dict[str, Any], others: dict[str, list[Any]], rng: Random) -> dict[str, Any]:
    """The claims with up to three others; None takes one away."""
    claims = dict(base)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        name = rng.choice(list(others))
        claims[name] = rng.choice(others[name])
    return {name: value for name, value in claims.items() if value is not None}


def unsecured_token(rng: Random) -> str:
    now = int(time.time())
    times = [None, now - 5, now + 50, now + 50.5, -1, 0, True, "x", [now]]
    others: dict[str, list[Any]] = {
        "sub": [None, "", " ", "x y", 5, ["a"], "ü"],
        "exp": times,
        "iat": [*times, now + 100, now + 200],
        "scope": [None, "a", " b ", "a b", ["b", "a", ""], ["a"], [], 5, ["a ", " b"], ["a", "b", "b"]],
    }
    claims = some_claims({"sub": "alice", "iat": now - 10, "exp": now + 100, "scope": ["a", "b"]}, others, rng)
    header = rng.choice([{"alg": "none"}] * 8 + [{"alg": "none", "crit": ["x"]}, {"alg": "NONE"}, {"alg": "RS256"}])
    return unsecured(claims, header, rng.choice((b"", b"", b"", b"", b"x")))


def signed_token(rng: Random) -> str:
    now = int(time.time())
    times = [None, now - 15, now - 45, now + 50, -1, 0, True, "x", [now]]
    others: dict[str, list[Any]] = {
        "sub": [None, "", " ", "x y", 5, ["a"], " bob ", "\u00a0x"],
        "exp": times,
        "iat": [*times, now + 100, now + 200, 1.5],
        "nbf": [*times, now + 15, now + 150],
        "scope": [None, "a", "", " ", "a b", ["a", "b"], ["b", ""], ["a", " a"], [], 5, ["a b"]],
        "aud": [None, "kafka", "k2", "x", ["x", "k2"], [], [5, "kafka"], {}, "Kafka", ""],
        "iss": [None, f"{ISSUER}/", "", 5, [ISSUER]],
        "jti": [5, "x"],
    }
    base = {"sub": "alice", "iat": now - 10, "exp": now + 100, "iss": ISSUER, "aud": "kafka"}
    rsa, one, ed = KEYS
    key, algorithm, name = rng.choice(
        [(one, "ES256", "one")] * 4
        + [(rsa, each, "rsa") for each in ("RS256", "RS256", "RS384", "PS256")]
        + [(ed, "EdDSA", "ed"), (private_key("other"), "ES256", "one")]
    )
    header = {"alg": algorithm, "kid": rng.choice([name] * 9 + ["zz"])}
    if rng.random() < 0.1:
        del header["kid"]
    claims = json.dumps(some_claims(base, others, rng)).encode()
    return jws.serialize_compact(header, claims, key, algorithms=[algorithm])


def messages_of(kind: str, rng: Random) -> tuple[list[bytes], bool]:
    """The messages of an exchange other than of SCRAM, and whether the first one was changed at random."""
    is_changed = rng.random() < 0.3
    if kind == "plain":
        user, password = rng.choice([*PASSWORDS, "nobody", ""]), rng.choice([*PASSWORDS.values(), "x", "alice-secret"])
        message = f"{rng.choice(('', '', 'bob', user))}\0{user}\0{password}".encode()
        return [changed(message, rng) if is_changed else message], is_changed
    token = unsecured_token(rng) if kind == "unsecured" else signed_token(rng)
    identity = rng.choice([""] * 8 + ["a=alice", "a=bob", "a==2C"])
    scheme = rng.choice(["auth=Bearer "] * 8 + ["auth=bearer  ", "Auth=Bearer ", "auth=Bearer"])
    field = rng.choice([""] * 6 + ["x=y\x01", "Trace=a b\t\r\n\x01", "auth=z\x01", "x=a=b\x01", "x=\x01", "a1=b\x01"])
    message = f"n,{identity},\x01{scheme}{token}\x01{field}\x01".encode()
    return [changed(message, rng) if is_changed else message, rng.choice((b"\x01", b"\x01", b"", b"x"))], is_changed


def difference(theirs: Answer | None, ours: Answer | None, *, is_changed: bool) -> str:
    """Why two answers differ: "" if they do not, a deliberate difference by its name, or both answers."""
    if theirs is None and ours is not None and (ours.error_code == 58 or b"invalid_token" in ours.token):
        return "an exception in Kafka"
    if theirs is not None and ours is not None:
        if theirs[:3] == ours[:3] and abs(theirs.lifetime_ms - ours.lifetime_ms) < LIFETIME_SLACK_MS:
            return ""
        if is_changed and b"invalid_token" in ours.token:
            return "Kafka takes other characters than those of base64"
    elif theirs is ours:
        return ""
    return f"{theirs} {ours}"


def test_random_exchanges_are_answered_as_by_kafka(kafka: Kafka, rng: Random) -> None:
    known = listeners()
    seen: Counter[str] = Counter()
    for _ in range(EXCHANGES):
        kind = rng.choice(("plain", "unsecured", "signed", "signed", "scram"))
        client = Client(known[kind], int(time.time() * 1_000))
        client.shake_hands(MECHANISMS[kind])
        with Connection(kafka.ports[kind]) as connection:
            hello = m.SaslHandshakeRequest(mechanism=MECHANISMS[kind])
            assert connection.ask(ApiKey.SASL_HANDSHAKE, 1, hello).error_code == 0
            if kind == "scram":
                seen[scram(connection, client, rng)] += 1
                continue
            messages, is_changed = messages_of(kind, rng)
            for message in messages:
                theirs, ours = connection.authenticate(message), answer_of(client.authenticate(message))
                why = difference(theirs, ours, is_changed=is_changed)
                assert why in ("", "an exception in Kafka", "Kafka takes other characters than those of base64"), (
                    message
                )
                seen[f"{kind} {ours and ours.error_code}"] += 1
                if why or ours is None or ours.error_code or not ours.token:
                    break
    assert {"plain 0", "plain 58", "unsecured 0", "unsecured 58", "signed 0", "signed 58"} <= seen.keys()
    assert {"scram 0", "scram 58", "scram first 58"} <= seen.keys()


def scram(connection: Connection, client: Client, rng: Random) -> str:
    """One exchange of SCRAM; how it ends."""
    header = rng.choice(("n,,", "n,,", "n,a=sally,", "n,a=bob,", "y,,", "n,a=,"))
    message = first("sally", header=header, extensions=rng.choice(("", "", ",x=y", ",x=", ",1=2"))).encode()
    if rng.random() < 0.4:
        message = changed(message, rng)
    theirs, ours = connection.authenticate(message), answer_of(client.authenticate(message))
    assert theirs is not None
    assert ours is not None
    if theirs.error_code and theirs != ours:
        # A user that does not exist is treated like one that does.
        assert b"n=sally," not in message
        return "scram unknown"
    if theirs.error_code:
        return "scram first 58"
    assert ours.error_code == 0
    password = rng.choice(("sally-secret", "sally-secret", "wrong"))
    ends = rng.choice(("", "", "", "", ",x=y", "=", "A", "x"))
    extension = rng.choice(("", "", ",x=y", ",x=", ",1=2", ",", ",p=b"))
    cut = rng.choice((0, 0, 0, 1, 4))
    nonce = rng.choice(("", "", "", "x"))
    answers = []
    for side, answer in ((connection, theirs), (client, ours)):
        text = answer.token.decode()
        own = text.split(",")[0].removeprefix("r=") + nonce
        last = final(SHA_256, password, message.decode(), text, nonce=own)[0].replace(",p=", f"{extension},p=")
        sent = (last[: len(last) - cut] + ends).encode()
        given = side.authenticate(sent)
        answers.append(given if isinstance(given, Answer) or given is None else answer_of(given))
    their_end, our_end = answers
    assert our_end is not None
    # A proof of another length is an exception in Kafka.
    assert their_end is None or their_end[:2] == our_end[:2]
    assert their_end is not None or our_end.error_code == 58
    return f"scram {our_end.error_code}"
