"""Delegation tokens: the rules of Apache Kafka 4.4.0 as a node of it answered, and the bounds that Kafka lacks."""

import hmac
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Self

import pytest

from kohort.broker.catalog.view import TOKENS, CatalogChange, Setting
from kohort.broker.tokens.token_apis import TokenApis
from kohort.model.errors import ErrorCode
from kohort.model.limits import (
    TOKEN_PRINCIPALS_BYTES_MAX,
    TOKEN_RENEWERS_MAX,
    TOKENS_MAX,
    TOKENS_OF_REQUESTER_MAX,
)
from kohort.model.principals import ANONYMOUS, Principal
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.harness import Harness

KEY = "token-key"
ALICE, BOB, ADMIN = Principal("alice"), Principal("bob"), Principal("admin")
PERIOD_MS, LIFE_MS, SWEEP_MS = 20_000, 60_000, 7_000
LONGEST = (1 << 63) - 1
NO_TIME = (-1, -1, -1)


def tokens_of(**settings: Any) -> Harness:
    usual = {
        "delegation_token_secret_key": KEY,
        "delegation_token_expiry_time_ms": str(PERIOD_MS),
        "delegation_token_max_lifetime_ms": str(LIFE_MS),
        "delegation_token_expiry_check_interval_ms": str(SWEEP_MS),
    }
    return Harness(**usual | settings)


def create(
    harness: Harness,
    by: Principal = ALICE,
    life_ms: int = -1,
    *,
    owner: tuple[str | None, str | None] = (None, None),
    renewers: Sequence[tuple[str, str]] = (),
    version: int = 3,
) -> Any:
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=owner[0] if version >= 3 else None,
        owner_principal_name=owner[1] if version >= 3 else None,
        renewers=[
            m.CreateDelegationTokenRequestCreatableRenewers(principal_type=kind, principal_name=name)
            for kind, name in renewers
        ],
        max_lifetime_ms=life_ms,
    )
    return harness.ask(ApiKey.CREATE_DELEGATION_TOKEN, request, principal=by, version=version)


def renew(harness: Harness, secret: bytes, period_ms: int = -1, by: Principal = ALICE) -> tuple[int, int]:
    request = m.RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms)
    answer = harness.ask(ApiKey.RENEW_DELEGATION_TOKEN, request, principal=by)
    return answer.error_code, answer.expiry_timestamp_ms


def expire(harness: Harness, secret: bytes, period_ms: int = -1, by: Principal = ALICE) -> tuple[int, int]:
    request = m.ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms)
    answer = harness.ask(ApiKey.EXPIRE_DELEGATION_TOKEN, request, principal=by)
    return answer.error_code, answer.expiry_timestamp_ms


def describe(harness: Harness, by: Principal = ALICE, owners: Sequence[Principal] | None = None) -> Any:
    asked = None
    if owners is not None:
        asked = [m.DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name) for each in owners]
    request = m.DescribeDelegationTokenRequest(owners=asked)
    return harness.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, request, principal=by)


class Allowing:
    """An authorizer that allows what it was made with, to clients of one address."""

    def __init__(self, allowed: Sequence[tuple[Principal, Operation, ResourceType, str]]) -> None:
        self._allowed = allowed

    def for_api(self, api: ApiKey, /) -> Self:
        assert api in (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN)
        return self

    version = 0
    logs_permissions = True

    def may(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        /,
        *,
        logs_refusal: bool = True,
        logs_permission: bool = True,
        count: int = 1,
    ) -> bool:
        assert (host, count) == ("127.0.0.1", 1)
        assert logs_refusal == (operation is Operation.CREATE_TOKENS)
        return (principal, operation, resource_type, name) in self._allowed

    def may_for_any(self, *_: object) -> bool:
        raise NotImplementedError


def allow(harness: Harness, *allowed: tuple[Principal, Operation, ResourceType, str]) -> None:
    """Serve the APIs with an authorizer that allows this alone."""

    broker = harness.broker
    apis = TokenApis(broker.tokens, broker.changes, broker.config, broker.clock, authorizer=Allowing(allowed))
    broker.serve(ApiKey.CREATE_DELEGATION_TOKEN, apis.create_delegation_token)
    broker.serve(ApiKey.DESCRIBE_DELEGATION_TOKEN, apis.describe_delegation_token)


def times(answer: Any) -> tuple[int, int, int]:
    return answer.issue_timestamp_ms, answer.expiry_timestamp_ms, answer.max_timestamp_ms


def names(answer: Any) -> tuple[str, str, str, str]:
    return (
        answer.principal_type,
        answer.principal_name,
        answer.token_requester_principal_type,
        answer.token_requester_principal_name,
    )


def test_the_secret_of_a_token_is_the_hmac_of_its_id_under_the_key() -> None:
    # A token of Apache Kafka 4.4.0.
    recorded = bytes.fromhex(
        "4708b3d36930400e2107b330cc1f0ef4f8967471291410645198d573d9c1ea5c"
        "86b3a622466ab75e2f919f8dbc99b1fdc54e49f2fccfa23f05e82d49c7bde945"
    )
    harness = tokens_of()
    fields = {"owner": ["User", "a"], "requester": ["User", "a"], "renewers": [], "issued_ms": 1, "expires_ms": 2}
    harness.broker.catalog.change(
        CatalogChange(settings=(Setting(TOKENS, "mjOT2UDhRsSSI7iHFjZUtg", fields | {"max_ms": 3}),)), lambda _: None
    )
    harness.node.settle()
    login = harness.broker.tokens.login("mjOT2UDhRsSSI7iHFjZUtg")
    assert login == (Principal("a"), 2, b64encode(recorded).decode())
    answer = create(harness)
    assert answer.hmac == hmac.digest(KEY.encode(), answer.token_id.encode(), "sha512")
    assert len(answer.token_id) == 22


LIVES = [  # maxLifetimeMs; the life until the token has to be renewed, and with all renewals
    (-1, PERIOD_MS, LIFE_MS),
    (0, PERIOD_MS, LIFE_MS),
    (1, 1, 1),
    (1_000, 1_000, 1_000),
    (30_000, PERIOD_MS, 30_000),
    (LONGEST, PERIOD_MS, LIFE_MS),
    (-LONGEST, PERIOD_MS, LIFE_MS),
]


@pytest.mark.parametrize(("life_ms", "period_ms", "longest_ms"), LIVES)
def test_the_life_of_a_new_token(life_ms: int, period_ms: int, longest_ms: int) -> None:
    harness = tokens_of()
    now_ms = harness.node.clock.now_ms()
    answer = create(harness, life_ms=life_ms)
    assert answer.error_code == 0
    assert times(answer) == (now_ms, now_ms + period_ms, now_ms + longest_ms)


def test_a_life_beyond_the_largest_number_ends_there() -> None:
    longest = {f"delegation_token_{name}_ms": str(LONGEST) for name in ("max_lifetime", "expiry_time")}
    harness = tokens_of(**longest)
    answer = create(harness)
    assert (answer.expiry_timestamp_ms, answer.max_timestamp_ms) == (LONGEST, LONGEST)
    assert renew(harness, answer.hmac, LONGEST) == (0, LONGEST)
    assert expire(harness, answer.hmac, LONGEST) == (0, LONGEST)


def test_whose_token_it_is() -> None:
    harness = tokens_of()
    assert names(create(harness)) == ("User", "alice", "User", "alice")
    assert names(create(harness, version=2))[:2] == ("User", "alice")
    assert names(create(harness, owner=("User", "bob"))) == ("User", "bob", "User", "alice")
    # As Kafka: an owner without a name is the requester, and the type of an owner may be any.
    assert names(create(harness, owner=("User", ""))) == ("User", "alice", "User", "alice")
    assert names(create(harness, owner=("Group", None))) == ("User", "alice", "User", "alice")
    assert names(create(harness, owner=("Group", "x"))) == ("Group", "x", "User", "alice")
    assert names(create(harness, owner=("", "x"))) == ("", "x", "User", "alice")


# fmt: off
REFUSALS: list[tuple[Principal, dict[str, Any], ErrorCode]] = [
    (ANONYMOUS, {}, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    (ALICE._replace(is_token=True), {}, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    (ANONYMOUS, {"owner": (None, "x")}, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED),
    (ALICE, {"owner": ("User", "bob")}, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    (ALICE, {"owner": ("Group", "alice")}, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    (ALICE, {"owner": ("User", "bob"), "renewers": [("Group", "x")]}, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED),
    (ALICE, {"renewers": [("Group", "x")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
    (ALICE, {"renewers": [("User", "b"), ("Group", "x")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
    # Kafka raises an exception, and answers with another owner.
    (ALICE, {"owner": (None, "x")}, ErrorCode.INVALID_REQUEST),
    # Kafka has no bounds. One such request ends its controller.
    (ALICE, {"renewers": [("User", "r")] * (TOKEN_RENEWERS_MAX + 1)}, ErrorCode.INVALID_REQUEST),
    (ALICE, {"renewers": [("User", "é" * (TOKEN_PRINCIPALS_BYTES_MAX // 2))]}, ErrorCode.INVALID_REQUEST),
    (ADMIN, {"owner": ("User", "x" * TOKEN_PRINCIPALS_BYTES_MAX)}, ErrorCode.INVALID_REQUEST),
]
# fmt: on


@pytest.mark.parametrize(("by", "fields", "code"), REFUSALS)
def test_refused_tokens(by: Principal, fields: dict[str, Any], code: ErrorCode) -> None:
    harness = tokens_of()
    owner = fields.get("owner", ("User", by.name))
    allow(harness, (ADMIN, Operation.CREATE_TOKENS, ResourceType.USER, f"User:{owner[1]}"))
    answer = create(harness, by, **fields)
    assert answer.error_code == code
    assert names(answer) == (owner[0] or "", owner[1], "User", by.name)
    assert (times(answer), answer.token_id, answer.hmac) == (NO_TIME, "", b"")
    assert not harness.broker.catalog.settings(TOKENS)


def test_a_token_for_another_user_needs_the_permission() -> None:
    harness = tokens_of()
    allow(harness, (ALICE, Operation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
    assert create(harness, owner=("User", "bob")).error_code == 0
    assert create(harness, owner=("User", "alice")).error_code == 0
    refused = create(harness, owner=("User", "carol")).error_code
    assert refused == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED


def test_without_the_key_there_are_no_tokens() -> None:
    harness = Harness()
    disabled = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    answer = create(harness)
    assert (answer.error_code, names(answer), times(answer)) == (disabled, ("User", "alice") * 2, (0, 0, 0))
    assert renew(harness, b"x") == expire(harness, b"x") == (disabled, 0)
    assert describe(harness).error_code == disabled
    # The checks that come first.
    assert create(harness, renewers=[("Group", "x")]).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
    assert create(harness, ANONYMOUS).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.mark.parametrize("by", [ANONYMOUS, BOB._replace(is_token=True)])
def test_users_without_a_login_of_their_own_have_nothing_to_do_with_tokens(by: Principal) -> None:
    harness = tokens_of()
    secret = create(harness, renewers=[("User", by.name)]).hmac
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert renew(harness, secret, by=by) == expire(harness, secret, by=by) == (refused, -1)
    answer = describe(harness, by)
    assert (answer.error_code, answer.tokens) == (refused, ())


PERIODS = [(-5, PERIOD_MS), (0, PERIOD_MS), (1, 1), (1_000, 1_000), (30_000, PERIOD_MS), (LONGEST, PERIOD_MS)]


@pytest.mark.parametrize(("period_ms", "added_ms"), PERIODS)
def test_a_renewed_token_ends_so_long_after_the_request(period_ms: int, added_ms: int) -> None:
    harness = tokens_of()
    secret = create(harness).hmac
    harness.node.advance(500)
    ends_ms = harness.node.clock.now_ms() + added_ms
    assert renew(harness, secret, period_ms) == (0, ends_ms)
    (token,) = describe(harness).tokens
    assert token.expiry_timestamp == ends_ms


def test_a_token_is_not_renewed_beyond_its_longest_life() -> None:
    harness = tokens_of()
    answer = create(harness)
    for _ in range(2):
        harness.node.advance(PERIOD_MS - 1_000)
        assert renew(harness, answer.hmac) == (0, harness.node.clock.now_ms() + PERIOD_MS)
    harness.node.advance(PERIOD_MS - 1_000)
    assert renew(harness, answer.hmac) == (0, answer.max_timestamp_ms)
    harness.node.advance(3_001)
    assert renew(harness, answer.hmac) == (ErrorCode.DELEGATION_TOKEN_EXPIRED, 0)


def test_who_may_renew_a_token_and_end_it() -> None:
    harness = tokens_of()
    secret = create(harness, owner=("User", "bob"), renewers=[("User", "carol")]).hmac
    mismatch = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    # The user who made it for another one has no right to it, and neither has a super user.
    assert renew(harness, secret) == expire(harness, secret) == expire(harness, secret, 5) == (mismatch, 0)
    for by in (BOB, Principal("carol")):
        assert renew(harness, secret, by=by)[0] == 0
        assert expire(harness, secret, 5_000, by)[0] == 0
    assert renew(harness, secret, by=Principal("carol", "Group"))[0] == mismatch


def test_secrets_that_nobody_has() -> None:
    harness = tokens_of()
    create(harness)
    for secret in (b"", b"x", bytes(64)):
        assert renew(harness, secret) == expire(harness, secret) == (ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0)


def test_kafka_17315_13771_an_expired_token_is_removed_by_a_negative_period() -> None:
    harness = tokens_of()
    secret = create(harness, life_ms=1_000, renewers=[("User", "bob")]).hmac
    harness.node.advance(1_000)
    assert renew(harness, secret, 1_000)[0] == 0  # Its last millisecond.
    harness.node.advance(1)
    expired, mismatch = ErrorCode.DELEGATION_TOKEN_EXPIRED, ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert renew(harness, secret) == renew(harness, secret, by=ADMIN) == (expired, 0)
    assert expire(harness, secret, 0) == (expired, 0)
    assert expire(harness, secret, 0, ADMIN) == expire(harness, secret, -1, ADMIN) == (mismatch, 0)
    assert len(describe(harness).tokens) == 1
    assert expire(harness, secret, -1, BOB) == (0, harness.node.clock.now_ms())
    assert not describe(harness).tokens


def test_a_period_until_the_end_of_a_token() -> None:
    harness = tokens_of()
    answer = create(harness)
    now_ms = harness.node.clock.now_ms()
    assert expire(harness, answer.hmac, 5_000) == (0, now_ms + 5_000)
    assert expire(harness, answer.hmac, LONGEST) == (0, answer.max_timestamp_ms)
    assert expire(harness, answer.hmac, 0) == (0, now_ms)
    harness.node.advance(1)
    assert renew(harness, answer.hmac)[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED


@pytest.mark.parametrize("period_ms", [-1, -LONGEST])
def test_a_negative_period_removes_a_token_at_once(period_ms: int) -> None:
    harness = tokens_of()
    answer = create(harness)
    other = create(harness)
    assert expire(harness, answer.hmac, period_ms) == (0, harness.node.clock.now_ms())
    assert expire(harness, answer.hmac, period_ms)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert harness.broker.tokens.login(answer.token_id) is None
    assert [token.token_id for token in describe(harness).tokens] == [other.token_id]


def test_a_token_that_is_being_removed_is_not_renewed() -> None:
    harness = tokens_of()
    secret = create(harness).hmac
    harness.hold()
    removed = harness.begin(
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        m.ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1),
        principal=ALICE,
    )
    assert renew(harness, secret)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    assert removed == []
    harness.let_go()
    assert removed[0].error_code == 0
    assert not harness.broker.catalog.settings(TOKENS)


def test_a_token_is_known_when_it_is_durable() -> None:
    harness = tokens_of()
    harness.hold()
    request = m.CreateDelegationTokenRequest(
        owner_principal_type=None, owner_principal_name=None, renewers=(), max_lifetime_ms=-1
    )
    answers = harness.begin(ApiKey.CREATE_DELEGATION_TOKEN, request, principal=ALICE)
    assert (answers, list(harness.broker.tokens.all())) == ([], [])
    harness.let_go()
    assert harness.broker.tokens.login(answers[0].token_id) is not None


def test_what_describe_shows_of_a_token() -> None:
    harness = tokens_of()
    made = create(harness, owner=("User", "bob"), renewers=[("User", "b"), ("User", "a"), ("User", "b"), ("User", "")])
    (token,) = describe(harness, BOB).tokens
    assert names(token) == ("User", "bob", "User", "alice")
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == times(made)
    assert (token.token_id, token.hmac) == (made.token_id, made.hmac)
    assert [(each.principal_type, each.principal_name) for each in token.renewers] == [
        ("User", "b"),
        ("User", "a"),
        ("User", "b"),
        ("User", ""),
    ]


def test_which_tokens_describe_shows() -> None:
    harness = tokens_of()
    own = create(harness).token_id
    renewed = create(harness, ADMIN, renewers=[("User", "alice")]).token_id
    of_bob = create(harness, ADMIN, owner=("User", "bob")).token_id
    of_carol = create(harness, ADMIN, owner=("User", "carol")).token_id

    def seen(
        *allowed: tuple[Principal, Operation, ResourceType, str], owners: Sequence[Principal] | None = None
    ) -> Any:
        allow(harness, *allowed)
        answer = describe(harness, ALICE, owners)
        assert answer.error_code == 0
        return [token.token_id for token in answer.tokens]

    the_token = (ALICE, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, of_bob)
    tokens_of_carol = (ALICE, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:carol")
    assert seen() == [own, renewed]
    assert seen(the_token) == [own, renewed, of_bob]
    assert seen(the_token, tokens_of_carol) == [own, renewed, of_bob, of_carol]
    assert seen((BOB, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, of_bob)) == [own, renewed]
    assert seen(the_token, tokens_of_carol, owners=[]) == []
    assert seen(the_token, tokens_of_carol, owners=[BOB]) == [of_bob]
    assert seen(owners=[BOB]) == []
    # A renewer is found as an owner is.
    assert seen(owners=[ALICE, ALICE]) == [own, renewed]
    assert seen(owners=[ADMIN]) == [renewed]
    assert seen(owners=[Principal("alice", "Group")]) == []


def test_a_sweep_removes_expired_tokens() -> None:
    harness = tokens_of()
    short = create(harness, life_ms=SWEEP_MS - 1).token_id
    late = create(harness, life_ms=SWEEP_MS).token_id
    long = create(harness).token_id
    harness.node.advance(SWEEP_MS - 1)
    assert list(harness.broker.catalog.settings(TOKENS)) == [short, late, long]
    harness.node.advance(1)
    assert list(harness.broker.catalog.settings(TOKENS)) == [late, long]
    assert [token.token_id for token in harness.broker.tokens.all()] == [late, long]
    harness.node.advance(SWEEP_MS)
    assert list(harness.broker.catalog.settings(TOKENS)) == [long]


def test_a_sweep_of_many_tokens_works_in_parts() -> None:
    harness = tokens_of()
    fields = {"owner": ["User", "a"], "requester": ["User", "a"], "renewers": [], "issued_ms": 1, "max_ms": 3}
    many = tuple(Setting(TOKENS, str(number), fields | {"expires_ms": 2}) for number in range(1_200))
    harness.broker.catalog.change(CatalogChange(settings=many), lambda _: None)
    harness.node.settle()
    removed: list[int] = []
    harness.broker.catalog.watch_settings(TOKENS, lambda settings: removed.append(len(settings)))
    harness.node.advance(SWEEP_MS + 10)
    assert removed == [500, 500, 200]
    assert not harness.broker.tokens._ids
    assert harness.broker.tokens.made_by(Principal("a")) == 0


def test_the_number_of_tokens_is_bounded() -> None:
    harness = tokens_of()
    fields = {"requester": ["User", "alice"], "renewers": [], "issued_ms": 1, "expires_ms": LONGEST, "max_ms": LONGEST}
    fields["owner"] = ["User", "x"]

    def fill(low: int, high: int, by: str) -> None:
        made = fields | {"requester": ["User", by]}
        many = tuple(Setting(TOKENS, str(number), made) for number in range(low, high))
        harness.broker.catalog.change(CatalogChange(settings=many), lambda _: None)
        harness.node.settle()

    fill(0, TOKENS_OF_REQUESTER_MAX - 1, "alice")
    last = create(harness)
    assert last.error_code == 0
    assert renew(harness, last.hmac)[0] == 0
    refused = create(harness)
    assert (refused.error_code, times(refused)) == (ErrorCode.POLICY_VIOLATION, NO_TIME)
    assert create(harness, BOB).error_code == 0
    assert expire(harness, last.hmac)[0] == 0
    assert create(harness).error_code == 0
    fill(TOKENS_OF_REQUESTER_MAX, TOKENS_MAX - 1, "someone")
    assert create(harness, BOB).error_code == ErrorCode.POLICY_VIOLATION


def test_tokens_are_there_after_a_restart() -> None:
    harness = tokens_of()
    made = create(harness, renewers=[("User", "bob")])
    ended = create(harness)
    expire(harness, ended.hmac)
    _, ends_ms = renew(harness, made.hmac, 7)
    again = tokens_of(store=harness.store, node=harness.node)
    (token,) = describe(again).tokens
    assert (token.token_id, token.hmac, token.expiry_timestamp) == (made.token_id, made.hmac, ends_ms)
    assert renew(again, made.hmac, by=BOB)[0] == 0


def test_another_key_makes_other_secrets() -> None:
    harness = tokens_of()
    made = create(harness)
    again = tokens_of(store=harness.store, node=harness.node, delegation_token_secret_key="other")
    assert renew(again, made.hmac)[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    (token,) = describe(again).tokens
    assert token.hmac == hmac.digest(b"other", made.token_id.encode(), "sha512")


def test_the_catalog_has_no_secret() -> None:
    harness = tokens_of()
    made = create(harness)
    stored = str(harness.broker.catalog.settings(TOKENS)[made.token_id])
    shown = (*harness.broker.tokens.all(), harness.broker.tokens.login(made.token_id))
    for text in (stored, *map(repr, shown)):
        assert made.hmac.hex() not in text
        assert b64encode(made.hmac).decode() not in text
        assert repr(made.hmac) not in text
        assert KEY not in text
