"""Access tokens: their form, their signatures and their claims."""

import hmac
import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joserfc import jwk, jws

from kohort.model.errors import ConfigError
from kohort.model.limits import ACCESS_TOKEN_BYTES_MAX, SIGNING_KEYS_MAX
from kohort.security.sasl.access_tokens import AcceptedToken, TokenError, TokenValidator, Unsecured
from kohort.security.sasl.signed_tokens import Signed, read_keys
from tests.security.sasl.tokens import CLAIMS, NOW_S, Keys, key_set, private_key, signed, unsecured

NOW_MS = NOW_S * 1_000
SIGNED = Signed(Keys(), ("kafka",), "https://issuer.test")
ALICE = AcceptedToken("alice", (NOW_S + 600) * 1_000)


def refusal(validator: TokenValidator, token: str) -> str:
    with pytest.raises(TokenError) as raised:
        validator.validate(token, NOW_MS)
    return raised.value.reason


# -- signatures -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "kind", "size"),
    [
        ("RS256", "RSA", 2_048),
        ("RS512", "RSA", 2_048),
        ("PS256", "RSA", 2_048),
        ("ES256", "EC", "P-256"),
        ("ES384", "EC", "P-384"),
        ("ES512", "EC", "P-521"),
        ("Ed25519", "OKP", "Ed25519"),
    ],
)
def test_key_decides_on_the_algorithms(algorithm: str, kind: str, size: Any) -> None:
    key = private_key("one", kind, size)
    validator = SIGNED._replace(keys=Keys(key_set(key)))
    token = signed(key=key, alg=algorithm)
    assert validator.validate(token, NOW_MS) == ALICE
    assert refusal(SIGNED, token) == "no key verifies the token"


def test_alg_of_the_key_excludes_others() -> None:
    key = private_key("one", "RSA", 2_048)
    validator = SIGNED._replace(keys=Keys(key_set(key, alg="RS256")))
    assert validator.validate(signed(key=key, alg="RS256"), NOW_MS) == ALICE
    assert refusal(validator, signed(key=key, alg="RS512")) == "no key verifies the token"


@pytest.mark.parametrize(
    "parameters", [{"use": "enc"}, {"alg": "HS256"}, {"alg": "none"}, {"crv": "secp256k1"}, {"x": "!"}]
)
def test_keys_that_cannot_verify_are_left_out(parameters: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="no key that can verify"):
        read_keys(key_set(private_key("one"), **parameters))


def test_small_rsa_keys_are_left_out() -> None:
    with pytest.warns(Warning, match="2048 bits"):
        small = jwk.generate_key("RSA", 1_024, private=True)
    with pytest.raises(ConfigError, match="no key that can verify"):
        read_keys(key_set(small))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"keys": 5}', b"\xff", b"[" * 100_000, b'{"keys": [5, null, {}]}']
)
def test_cve_2025_27817_what_is_no_key_set_is_not_shown(text: bytes) -> None:
    with pytest.raises(ConfigError) as raised:
        read_keys(text)
    assert text.decode(errors="replace")[:20] not in str(raised.value) or not text


def test_key_sets_are_bounded() -> None:
    one = json.loads(key_set(private_key("one")))["keys"]
    assert len(read_keys(json.dumps({"keys": one * SIGNING_KEYS_MAX}).encode())) == SIGNING_KEYS_MAX
    with pytest.raises(ConfigError, match="at most"):
        read_keys(json.dumps({"keys": one * (SIGNING_KEYS_MAX + 1)}).encode())


def test_cve_2026_32597_critical_headers_are_refused() -> None:
    """Also one that the library knows: no part of a header is critical to Kafka's validator."""
    encoded = signed().split(".")
    header = (
        urlsafe_b64encode(json.dumps({"alg": "ES256", "kid": "one", "crit": ["x"], "x": 1}).encode())
        .rstrip(b"=")
        .decode()
    )
    assert "critical" in refusal(SIGNED, ".".join([header, *encoded[1:]]))


@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_ghsa_xgmm_8j9v_c9wx_public_key_is_no_hmac_secret(algorithm: str) -> None:
    """A token whose HMAC has the public key as its secret, in the forms in which an attacker has it."""
    public = private_key("one")
    for secret in (public.as_pem(private=False), json.dumps(public.as_dict(private=False)).encode()):
        content = unsecured(CLAIMS, {"alg": algorithm, "kid": "one"}).rstrip(".")
        digest = hmac.digest(secret, content.encode(), f"sha{algorithm[2:]}")
        token = unsecured(CLAIMS, {"alg": algorithm, "kid": "one"}, digest)
        assert refusal(SIGNED, token) == "no key verifies the token"


def test_ghsa_jq35_7prp_9v3f_key_in_the_header_is_not_used() -> None:
    """A token that brings its own key, or says where it is."""
    own = private_key("one", "EC", "P-384")
    for header in ({"jwk": own.as_dict(private=False)}, {"jku": "http://127.0.0.1/keys"}, {"x5u": "http://127.0.0.1/"}):
        assert refusal(SIGNED, signed(key=own, alg="ES384", **header)) == "no key verifies the token"


def test_cve_2026_33557_forged_tokens() -> None:
    """The validator of 4.1.0 looked at no signature."""
    section = signed().split(".")
    payload = urlsafe_b64encode(json.dumps(CLAIMS | {"sub": "admin"}).encode()).rstrip(b"=").decode()
    for token in (
        unsecured(CLAIMS),
        unsecured(CLAIMS, {"alg": "None"}),
        unsecured(CLAIMS, {"alg": "ES256", "kid": "one"}, b"x" * 64),
        unsecured(CLAIMS, {"kid": "one"}),
        unsecured(CLAIMS, {"alg": "ES256", "kid": 5}),
        f"{section[0]}.{payload}.{section[2]}",
        f"{section[0]}.{section[1]}.",
        signed(key=private_key("other")),
        signed(kid="two"),
    ):
        refusal(SIGNED, token)


def test_token_without_the_name_of_a_key_is_tried_with_all() -> None:
    validator = SIGNED._replace(
        keys=Keys(key_set(private_key("two"), private_key("three", "RSA", 2_048), private_key("one")))
    )
    assert validator.validate(signed(kid=None), NOW_MS) == ALICE


# -- claims -----------------------------------------------------------------------------------------------------

# fmt: off
CLAIMS_OF_SIGNED: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    ({"exp": NOW_S - 29, "iat": 1}, None),
    ({"exp": NOW_S - 30, "iat": 1}, "the token has expired"),
    ({"exp": NOW_S + 0.5}, None),
    ({"exp": 1e300}, "the claim exp is no time"),
    ({"exp": 1 << 62}, "the claim exp is no time"),
    ({"exp": 9e15}, None),
    ({"iat": -1}, "the token is older than all tokens"),
    ({"iat": 0}, None),
    ({"nbf": -1}, None),
    ({"jti": 5}, "the claim jti is no text"),
    ({"jti": "5"}, None),
    ({"exp": float("inf")}, "a section of the token is not JSON"),
    ({"exp": True}, "the claim exp is no time"),
    ({"exp": "1100"}, "the claim exp is no time"),
    ({"exp": None}, "the token does not say when it was issued, and when it ends"),
    ({"iat": None}, "the token does not say when it was issued, and when it ends"),
    ({"iat": NOW_S + 599}, None),
    ({"iat": NOW_S + 601}, "the token ends before it begins"),
    ({"nbf": NOW_S + 30}, None),
    ({"nbf": NOW_S + 31}, "the token is not valid yet"),
    ({"nbf": NOW_S + 20, "exp": NOW_S + 10}, "the token ends before it begins"),
    ({"iss": None}, "the token has another issuer"),
    ({"iss": ["https://issuer.test"]}, "the token has another issuer"),
    ({"aud": ["x", "kafka"]}, None),
    ({"aud": []}, "the token is for another audience"),
    ({"aud": ["x", 5, "kafka"]}, "the token is for another audience"),
    ({"aud": "kafka2"}, "the token is for another audience"),
    ({"aud": {"kafka": 1}}, "the token is for another audience"),
    ({"sub": ""}, "the claim sub names no user"),
    ({"sub": ["alice"]}, "the claim sub names no user"),
    ({"sub": "\talice "}, None),
    ({"nbf": 1.5}, None),
    ({"scope": ""}, "the claim scope has a blank or a repeated scope"),
    ({"scope": [5]}, "the claim scope has a blank or a repeated scope"),
    ({"scope": ["a", " a"]}, "the claim scope has a blank or a repeated scope"),
    ({"scope": []}, None),
    ({"scope": 5}, None),
]
# fmt: on


@pytest.mark.parametrize(("claims", "reason"), CLAIMS_OF_SIGNED)
def test_claims_of_signed_tokens(claims: dict[str, Any], reason: str | None) -> None:
    token = signed({name: value for name, value in (CLAIMS | claims).items() if value is not None})
    if reason is None:
        assert SIGNED.validate(token, NOW_MS).subject == "alice"
    else:
        assert refusal(SIGNED, token) == reason


def test_infinite_time() -> None:
    """JSON has no infinity, but numbers that are too large for Python."""
    claims = json.dumps(CLAIMS | {"exp": 0.125}).replace("0.125", "1e999").encode()
    key = private_key("one")
    whole = jws.serialize_compact({"alg": "ES256", "kid": "one"}, claims, key, algorithms=["ES256"])
    assert refusal(SIGNED, whole) == "the claim exp is no time"


def test_any_audience_and_any_issuer_if_none_is_expected() -> None:
    token = signed(CLAIMS | {"aud": "other", "iss": "other"})
    assert SIGNED._replace(audiences=None, issuer=None).validate(token, NOW_MS) == ALICE


def test_blanks_are_those_of_java() -> None:
    assert SIGNED.validate(signed(CLAIMS | {"sub": "\u00a0"}), NOW_MS).subject == "\u00a0"


def test_other_claims() -> None:
    validator = SIGNED._replace(subject_claim="user", scope_claim="scp")
    assert validator.validate(signed(CLAIMS | {"user": "bob", "scope": ["a", "a"]}), NOW_MS).subject == "bob"
    assert "scp" in refusal(validator, signed(CLAIMS | {"user": "bob", "scp": ["a", "a"]}))


# fmt: off
CLAIMS_OF_UNSECURED: list[tuple[dict[str, Any], str | None]] = [
    ({"sub": "alice", "exp": NOW_S + 1}, None),
    ({"sub": "alice", "exp": NOW_S + 1, "iat": NOW_S}, None),
    ({"sub": "alice", "exp": NOW_S}, "the token has expired"),
    ({"sub": "alice"}, "the token has expired"),
    ({"sub": "alice", "exp": NOW_S + 5, "iat": NOW_S + 1}, "the token is issued in the future, or after it ends"),
    ({"sub": "alice", "exp": NOW_S + 1, "iat": "x"}, "the claim iat is no time"),
    ({"sub": " ", "exp": NOW_S + 1}, "the claim sub names no user"),
    ({"exp": NOW_S + 1}, "the claim sub names no user"),
    ({"sub": "alice", "exp": NOW_S + 1, "scope": {}}, "the claim scope has no scopes"),
    ({"sub": "alice", "exp": NOW_S + 1, "scope": ["a", ""]}, None),
]
# fmt: on


@pytest.mark.parametrize(("claims", "reason"), CLAIMS_OF_UNSECURED)
def test_claims_of_unsecured_tokens(claims: dict[str, Any], reason: str | None) -> None:
    token = unsecured(claims)
    if reason is None:
        assert Unsecured().validate(token, NOW_MS) == AcceptedToken("alice", (NOW_S + 1) * 1_000)
    else:
        assert refusal(Unsecured(), token) == reason


def test_skew_and_scopes_of_unsecured_tokens() -> None:
    validator = Unsecured("user", "scp", ("a", "b"), 3_000)
    right = {"user": "alice", "exp": NOW_S - 2, "iat": NOW_S - 3, "scp": ["b", "a", "c"]}
    assert validator.validate(unsecured(right), NOW_MS).subject == "alice"
    with pytest.raises(TokenError) as raised:
        validator.validate(unsecured(right | {"scp": "a"}), NOW_MS)
    assert raised.value.scope == "[a, b]"


@pytest.mark.parametrize(
    "token",
    [
        "",
        ".",
        "..",
        "e30.e30",
        "e30.e30.e30.e30",
        "e30=.e30.",
        "e3 0.e30.",
        "e30.W10.",
        "e30.Mw.",
        "e30.bnVsbA.",
        "a.e30.",
        "e30.eyJ4IjpOYU59.",
    ],
)
def test_malformed_tokens(token: str) -> None:
    for validator in (Unsecured(), SIGNED):
        refusal(validator, token)


def test_deep_and_long_tokens() -> None:
    deep = urlsafe_b64encode(b"[" * 40_000).decode().rstrip("=")
    for validator in (Unsecured(), SIGNED):
        assert "not JSON" in refusal(validator, f"{deep}.e30.")
        assert "too long" in refusal(validator, "a" * (ACCESS_TOKEN_BYTES_MAX + 1))


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 400), st.sampled_from("abcXYZ019-_."), st.booleans())
def test_no_changed_token_is_valid(place: int, character: str, is_inserted: bool) -> None:
    token = signed()
    place %= len(token)
    changed = token[:place] + character + token[place + (not is_inserted) :]
    # The last character of a section has bits that say nothing.
    if changed != token and token[place : place + 2][1:] not in (".", ""):
        refusal(SIGNED, changed)
