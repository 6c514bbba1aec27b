"""The authorizer of a broker: configurations, the audit log, counts of refusals, and when a change has an effect."""

import json
import logging
from typing import Any

import pytest

from kohort.broker.acls.authorizer import OTHERS, AclAuthorizer
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.loggers import AUDIT_LOG, TRACE
from kohort.model import limits
from kohort.model.errors import ConfigError
from kohort.model.principals import Principal
from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from kohort.server.logs import JsonFormatter, KeyValueFormatter, RepeatLimit
from kohort.wire.apis import ApiKey
from tests.broker.acls.acl_requests import AUTHORIZER, GOOD, create, delete, guarded
from tests.broker.configs.test_configs import BROKER, describe
from tests.broker.harness import Harness

ALICE = Principal("alice")
READ_T = (Operation.READ, ResourceType.TOPIC, "t")
HOST = "127.0.0.1"


def authorizer_of(harness: Harness, *acls: Acl) -> AclAuthorizer:
    create(harness, *acls)
    authorizer = harness.broker.authorizer
    assert isinstance(authorizer, AclAuthorizer)
    return authorizer


# -- configurations ------------------------------------------------------------------------------------------------


def test_without_the_configuration_there_is_no_authorizer() -> None:
    assert Harness().broker.authorizer is None
    assert Harness(authorizer_class_name="").broker.authorizer is None


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (
            {"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer"},
            "there is no authorizer kafka.security.author",
        ),
        (AUTHORIZER | {"super_users": "User:a;bob"}, "super.users: Could not parse principal from `bob`"),
    ],
)
def test_a_configuration_that_cannot_be_used_ends_the_start(settings: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        Harness(**settings)


@pytest.mark.parametrize(("text", "is_allowed"), [("true", True), (" TRUE ", True), ("false", False), ("yes", False)])
def test_everyone_may_use_a_resource_without_acls_if_the_configuration_says_so(text: str, is_allowed: bool) -> None:
    authorizer = authorizer_of(guarded(**{"allow.everyone.if.no.acl.found": text}))
    assert authorizer.may(ALICE, HOST, *READ_T) == is_allowed


def test_super_users_may_do_everything() -> None:
    authorizer = authorizer_of(
        guarded(super_users="User:root; User:alice;User:ANONYMOUS"), GOOD._replace(permission=Permission.DENY)
    )
    assert authorizer.may(ALICE, HOST, *READ_T)
    assert authorizer.may(ALICE._replace(is_token=True), HOST, *READ_T)
    assert authorizer.may(ALICE, HOST, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    assert not authorizer.may(Principal("bob"), HOST, *READ_T)


def test_the_keys_of_the_authorizer_are_known_with_it_only_and_their_values_hidden() -> None:
    keys = {"super.users": "User:a", "allow.everyone.if.no.acl.found": "true"}
    name = AUTHORIZER["authorizer_class_name"]
    assert set(BrokerConfig(keys).unknown) == set(keys)
    assert BrokerConfig(keys | {"authorizer.class.name": name}).unknown == {}
    environment = {"KOHORT_SUPER_USERS": "User:a", "KOHORT_LONG": "1"}
    assert BrokerConfig.load(environment=environment).others == {"super.users": "User:a"}
    shown = {
        each.name: each for each in describe(guarded(super_users="User:secret;User:ANONYMOUS"), BROKER, "1").configs
    }
    assert (shown["super.users"].value, shown["super.users"].is_sensitive) == (None, True)
    assert shown["authorizer.class.name"].value == name


def test_a_start_at_which_nobody_may_do_anything_says_so(caplog: pytest.LogCaptureFixture) -> None:
    guarded(super_users="")
    assert [line for line in caplog.messages if line.startswith("authorizer.nobody")]
    caplog.clear()
    guarded()
    assert not caplog.messages


# -- when a change has an effect -----------------------------------------------------------------------------------


def test_a_decision_follows_every_change_of_acls() -> None:
    harness = guarded()
    mine = GOOD._replace(principal="User:alice")
    authorizer = authorizer_of(harness).for_api(ApiKey.FETCH)
    for _ in range(2):
        assert not authorizer.may(ALICE, HOST, *READ_T)
        assert not authorizer.may_for_any(ALICE, HOST, Operation.READ, ResourceType.TOPIC)
        create(harness, mine)
        for _ in range(2):
            assert authorizer.may(ALICE, HOST, *READ_T)
            assert authorizer.may_for_any(ALICE, HOST, Operation.READ, ResourceType.TOPIC)
        create(harness, mine._replace(permission=Permission.DENY))
        assert not authorizer.may(ALICE, HOST, *READ_T)
        assert not authorizer.may_for_any(ALICE, HOST, Operation.READ, ResourceType.TOPIC)
        delete(harness, {})


def test_every_change_of_acls_has_a_version_of_its_own() -> None:
    """What a connection remembers as allowed, it remembers of one version."""
    harness = guarded()
    of_fetches = authorizer_of(harness).for_api(ApiKey.FETCH)
    versions = [of_fetches.version]
    for change in (lambda: create(harness, GOOD), lambda: delete(harness, {})):
        change()
        versions.append(of_fetches.version)
    assert versions == sorted(set(versions))
    assert len(versions) == 3


def test_kept_decisions_are_bounded_and_those_of_long_names_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.acls.authorizer.ACL_DECISIONS_KEPT", 3)
    authorizer = authorizer_of(guarded(), GOOD._replace(name="t", pattern=PatternType.PREFIXED, principal="User:*"))
    for number in range(10):
        assert authorizer.may(ALICE, HOST, Operation.READ, ResourceType.TOPIC, f"t{number}")
        assert authorizer.may_for_any(Principal(f"u{number}"), HOST, Operation.READ, ResourceType.TOPIC)
        assert len(authorizer._allowed) <= 3
        assert len(authorizer._any) <= 3
    before = len(authorizer._allowed)
    name = "t" * limits.ACL_DECISION_LENGTH_MAX
    assert authorizer.may(ALICE, HOST, Operation.READ, ResourceType.TOPIC, name)
    assert len(authorizer._allowed) == before


# -- counts --------------------------------------------------------------------------------------------------------


def test_refusals_are_counted_by_user_and_api() -> None:
    authorizer = authorizer_of(guarded(), GOOD._replace(principal="User:alice"))
    fetch, produce = authorizer.for_api(ApiKey.FETCH), authorizer.for_api(ApiKey.PRODUCE)
    fetch.may(ALICE, HOST, *READ_T)
    fetch.may(Principal("bob"), HOST, *READ_T)
    fetch.may(Principal("bob"), HOST, *READ_T)
    fetch.may(Principal("bob"), HOST, *READ_T, logs_refusal=False)
    produce.may_for_any(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)
    assert dict(authorizer.refusals) == {("User:bob", "Fetch"): 2, ("User:alice", "Produce"): 1}


def test_the_users_whose_refusals_are_counted_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.acls.authorizer.REFUSED_USERS_MAX", 2)
    authorizer = authorizer_of(guarded()).for_api(ApiKey.FETCH)
    for name in ("a", "b", "c", "d", "a", "x" * 5_000):
        authorizer.may(Principal(name), HOST, *READ_T)
    assert dict(authorizer.refusals) == {("User:a", "Fetch"): 2, ("User:b", "Fetch"): 1, (OTHERS, "Fetch"): 3}


# -- the audit log -------------------------------------------------------------------------------------------------


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(TRACE, AUDIT_LOG)
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(each.levelno, each.getMessage()) for each in caplog.records if each.name == AUDIT_LOG]


def test_the_audit_log_has_the_text_and_the_levels_of_kafka(audit: pytest.LogCaptureFixture) -> None:
    denied = Acl(ResourceType.TOPIC, PatternType.LITERAL, "t-a", "User:alice", "*", Operation.WRITE, Permission.DENY)
    authorizer = authorizer_of(
        guarded(), denied, denied._replace(operation=Operation.READ, permission=Permission.ALLOW)
    )
    audit.clear()
    topic = (ResourceType.TOPIC, "t-a")
    fetch = authorizer.for_api(ApiKey.FETCH)
    fetch.may(Principal("bob"), HOST, Operation.READ, *topic)
    fetch.may(ALICE, HOST, Operation.WRITE, *topic, count=3)
    fetch.may(ALICE, HOST, Operation.READ, *topic)
    fetch.may(ALICE, HOST, Operation.READ, *topic)
    fetch.may(ALICE, HOST, Operation.READ, *topic, logs_refusal=False)
    fetch.may(ALICE, HOST, Operation.READ, *topic, logs_refusal=False, logs_permission=False)
    fetch.may(ALICE, HOST, Operation.READ, ResourceType.TRANSACTIONAL_ID, "x", logs_refusal=False)
    fetch.may(Principal("admin"), HOST, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    fetch.may_for_any(Principal("bob"), HOST, Operation.WRITE, ResourceType.TOPIC)
    acl = (
        "StandardAcl[resourceType=TOPIC, resourceName=t-a, patternType=LITERAL, principal=User:alice, host=*, "
        "operation={}, permissionType={}]"
    )
    head, tail = " from host = 127.0.0.1 on resource = ", " for request = Fetch with resourceRefCount = "
    rule = f"based on rule MatchingAcl(acl={acl})"
    read = f"Allowed operation = READ{head}Topic:LITERAL:t-a{tail}1 {rule.format('READ', 'ALLOW')}"
    write = f"Denied operation = WRITE{head}Topic:LITERAL:t-a{tail}3 {rule.format('WRITE', 'DENY')}"
    texts = [
        (logging.INFO, "bob", f"Denied operation = READ{head}Topic:LITERAL:t-a{tail}1 based on rule DefaultDeny"),
        (logging.INFO, "alice", write),
        (logging.DEBUG, "alice", read),
        (logging.DEBUG, "alice", read),
        (logging.DEBUG, "alice", read),
        (TRACE, "alice", read),
        (TRACE, "alice", f"Denied operation = READ{head}TransactionalId:LITERAL:x{tail}1 based on rule DefaultDeny"),
        (
            logging.DEBUG,
            "admin",
            f"Allowed operation = ALTER{head}Cluster:LITERAL:{CLUSTER_NAME}{tail}1 based on rule SuperUser",
        ),
        (logging.INFO, "bob", f"Denied operation = WRITE{head}any Topic{tail}1 based on rule AuthorizeByResourceType"),
    ]
    assert lines(audit) == [(level, f"Principal = User:{user} is {text}") for level, user, text in texts]


def test_names_in_the_audit_log_are_escaped_and_cut(audit: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(guarded())
    audit.clear()
    name = "x\n2026 INFO level=ERROR \x1b[2J" + "y" * 40_000
    authorizer.may(Principal("bob\r\n" + "z" * 40_000), HOST, Operation.READ, ResourceType.GROUP, name)
    (record,) = [each for each in audit.records if each.name == AUDIT_LOG]
    line = KeyValueFormatter().format(record)
    assert len(line) < 3 * limits.AUDIT_TEXT_LENGTH_MAX
    assert line.isprintable()
    assert "x\\n2026 INFO level=ERROR \\x1b[2Jyyy" in line
    fields: dict[str, Any] = json.loads(JsonFormatter().format(record))
    assert fields.keys() == {"time_ms", "level", "logger", "event"}
    assert fields["level"] == "INFO"
    assert fields["event"] == record.getMessage()


def test_the_lines_of_one_user_are_limited_by_time(audit: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(guarded())
    audit.clear()
    for _ in range(50):
        authorizer.may(ALICE, HOST, *READ_T)
    authorizer.may(Principal("bob"), HOST, *READ_T)
    now = 0.0
    limit = RepeatLimit(lambda: now)
    passed = [each for each in audit.records if each.name == AUDIT_LOG and limit.filter(each)]
    assert [("User:bob" in each.getMessage()) for each in passed] == [False] * 10 + [True]
    now = 10.0
    authorizer.may(ALICE, HOST, *READ_T)
    assert limit.filter(audit.records[-1])
    assert audit.records[-1].getMessage().endswith("based on rule DefaultDeny suppressed=40")


def test_a_refusal_without_a_listener_of_its_level_costs_no_rule(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, AUDIT_LOG)
    authorizer_of(guarded()).may(ALICE, HOST, *READ_T)
    assert not lines(caplog)
