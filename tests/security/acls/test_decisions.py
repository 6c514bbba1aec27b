"""Decisions of the authorizer: tables, the decisions recorded from Apache Kafka, and the plain twin that scans all ACLs."""

import gc
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.model.errors import ConfigError
from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.acls.decisions import Decisions, parse_super_users
from kohort.security.acls.filters import AclFilter, selected
from kohort.security.acls.index import AclIndex
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from tests.security.acls.plain import ACLS, ASKED, CLIENTS, FILTERS, NAMES, TYPES, USERS, is_selected, may, may_for_any

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "security" / "authorizer-4.4.0.json").read_text())


def acl(text: str) -> Acl:
    """`ALLOW READ TOPIC LITERAL name User:alice *`; the last two may be left out."""
    permission, operation, resource_type, pattern, name, principal, host = [*text.split(), "User:alice", "*"][:7]
    if len(text.split()) == 6:
        principal, host = text.split()[5], "*"
    return Acl(
        ResourceType[resource_type],
        PatternType[pattern],
        name,
        principal,
        host,
        Operation[operation],
        Permission[permission],
    )


def decisions(*texts: str, if_none: bool = False, super_users: str = "") -> Decisions:
    return Decisions(AclIndex(map(acl, texts)), parse_super_users(super_users), allows_without_acls=if_none)


def may_read(rules: Decisions, name: str = "orders", principal: str = "User:alice", host: str = "10.0.0.1") -> bool:
    return rules.may(principal, host, Operation.READ, ResourceType.TOPIC, name)


@pytest.mark.parametrize("row", RECORDED, ids=[row["id"] for row in RECORDED])
def test_the_decision_is_that_of_apache_kafka(row: dict[str, Any]) -> None:
    rules = decisions(*(" ".join(fields) for fields in row["acls"]), if_none=row["everyone"], super_users="User:admin")
    asker = f"User:{row['user']}", "127.0.0.1"
    if row["asked"] == "idempotent":
        is_allowed = rules.may(*asker, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or (
            rules.may_for_any(*asker, Operation.WRITE, ResourceType.TOPIC)
        )
    else:
        operation, resource_type, name = row["asked"].split()
        is_allowed = rules.may(*asker, Operation[operation], ResourceType[resource_type], name)
    assert is_allowed == row["allowed"]


@pytest.mark.parametrize(
    ("operation", "implied"),
    [
        ("READ", {"READ", "DESCRIBE"}),
        ("WRITE", {"WRITE", "DESCRIBE"}),
        ("DELETE", {"DELETE", "DESCRIBE"}),
        ("ALTER", {"ALTER", "DESCRIBE"}),
        ("CREATE", {"CREATE"}),
        ("DESCRIBE", {"DESCRIBE"}),
        ("ALTER_CONFIGS", {"ALTER_CONFIGS", "DESCRIBE_CONFIGS"}),
        ("DESCRIBE_CONFIGS", {"DESCRIBE_CONFIGS"}),
        ("ALL", {operation.name for operation in Operation} - {"ALL"}),
    ],
)
def test_an_allowed_operation_implies_others_and_a_denied_one_does_not(operation: str, implied: set[str]) -> None:
    allowing = decisions(f"ALLOW {operation} TOPIC LITERAL t")
    denying = decisions("ALLOW ALL TOPIC LITERAL t", f"DENY {operation} TOPIC LITERAL t")
    asked = [each for each in Operation if each != Operation.ALL]
    by = ("User:alice", "10.0.0.1")
    assert {each.name for each in asked if allowing.may(*by, each, ResourceType.TOPIC, "t")} == implied
    denied = {each.name for each in asked if not denying.may(*by, each, ResourceType.TOPIC, "t")}
    assert denied == (implied if operation == "ALL" else {operation})


@pytest.mark.parametrize(
    ("texts", "is_allowed"),
    [
        (["ALLOW READ TOPIC LITERAL orders"], True),
        (["ALLOW READ TOPIC LITERAL Orders"], False),
        (["ALLOW READ TOPIC LITERAL order"], False),
        (["ALLOW READ TOPIC LITERAL *"], True),
        (["ALLOW READ TOPIC PREFIXED o"], True),
        (["ALLOW READ TOPIC PREFIXED orders"], True),
        (["ALLOW READ TOPIC PREFIXED orders-"], False),
        (["ALLOW READ TOPIC PREFIXED *"], False),
        (["ALLOW READ GROUP LITERAL orders"], False),
        (["ALLOW READ TOPIC LITERAL orders", "DENY READ TOPIC PREFIXED ord"], False),
        (["ALLOW READ TOPIC PREFIXED ord", "DENY READ TOPIC LITERAL orders"], False),
        (["ALLOW READ TOPIC LITERAL orders", "DENY ALL TOPIC LITERAL *"], False),
        (["ALLOW READ TOPIC LITERAL orders User:*"], True),
        (["ALLOW READ TOPIC LITERAL orders User:bob"], False),
        (["ALLOW READ TOPIC LITERAL orders User:alice 10.0.0.1"], True),
        (["ALLOW READ TOPIC LITERAL orders User:alice 10.0.0.2"], False),
        (["ALLOW READ TOPIC LITERAL orders User:alice 10.1.0.0/8"], True),
        (["ALLOW READ TOPIC LITERAL orders User:alice ::/0"], False),
        (["ALLOW READ TOPIC LITERAL orders", "DENY READ TOPIC LITERAL orders User:alice 10.0.0.0/24"], False),
    ],
)
def test_patterns_principals_and_hosts(texts: list[str], is_allowed: bool) -> None:
    assert may_read(decisions(*texts)) == is_allowed


@pytest.mark.parametrize(
    ("texts", "is_allowed"),
    [
        (["ALLOW WRITE TOPIC LITERAL t"], True),
        (["ALLOW READ TOPIC LITERAL t"], False),  # nothing is implied
        (["ALLOW WRITE TOPIC PREFIXED t", "DENY WRITE TOPIC LITERAL t"], True),
        (["ALLOW WRITE TOPIC PREFIXED t", "DENY WRITE TOPIC PREFIXED t"], False),
        (["ALLOW WRITE TOPIC LITERAL t", "DENY WRITE TOPIC LITERAL t"], False),
        (["ALLOW WRITE TOPIC LITERAL t", "ALLOW WRITE TOPIC LITERAL u", "DENY WRITE TOPIC LITERAL t"], True),
        (["ALLOW WRITE TOPIC LITERAL tt", "DENY WRITE TOPIC PREFIXED t"], False),
        (["ALLOW WRITE TOPIC LITERAL t", "DENY WRITE TOPIC LITERAL *"], False),
        (["ALLOW WRITE TOPIC LITERAL *", "DENY WRITE TOPIC PREFIXED t"], True),
        (["ALLOW WRITE TOPIC LITERAL *", "DENY WRITE TOPIC LITERAL hardcode"], True),
        (["ALLOW WRITE TOPIC LITERAL t", "DENY WRITE TOPIC LITERAL t User:*"], False),
        (["ALLOW WRITE TOPIC LITERAL t", "DENY WRITE TOPIC LITERAL t User:alice 11.0.0.0/8"], True),
    ],
)
def test_an_operation_on_any_resource_of_a_type(texts: list[str], is_allowed: bool) -> None:
    rules = decisions(*texts)
    assert rules.may_for_any("User:alice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC) == is_allowed


def test_a_range_with_two_texts_ends_with_the_second() -> None:
    index = AclIndex()
    first, second = (acl(f"ALLOW READ TOPIC LITERAL t User:alice {host}") for host in ("10.0.0.0/8", "10.1.1.1/8"))
    index.add(first)
    index.add(second)
    rules = Decisions(index, (), allows_without_acls=False)
    index.remove(first)
    assert may_read(rules, "t")
    index.remove(second)
    assert not may_read(rules, "t")


def test_a_resource_without_acls_is_allowed_if_everyone_may_use_it() -> None:
    rules = decisions("ALLOW READ TOPIC LITERAL payments User:bob 10.0.0.9", if_none=True)
    assert may_read(rules, "orders")
    assert not may_read(rules, "payments")


@pytest.mark.parametrize("length", range(1, 7))
def test_a_prefix_of_any_length_matches_also_of_one_character_as_KAFKA_7702_asks(length: int) -> None:  # noqa: N802
    rules = decisions(f"ALLOW READ TOPIC PREFIXED {'orders'[:length]}", "ALLOW READ TOPIC PREFIXED orders-")
    assert may_read(rules, "orders")
    assert may_read(rules, "orders"[:length])
    assert not may_read(rules, "orders"[: length - 1] + "-")


@pytest.mark.parametrize("operation", [each for each in Operation if each != Operation.ALL])
def test_all_is_every_operation_in_allow_and_in_deny_as_KAFKA_13697_asks(operation: Operation) -> None:  # noqa: N802
    allowed = decisions("ALLOW ALL TOPIC PREFIXED t")
    denied = decisions(
        "ALLOW ALL TOPIC PREFIXED t", f"ALLOW {operation.name} TOPIC LITERAL t", "DENY ALL TOPIC LITERAL t"
    )
    asked = ("User:alice", "10.0.0.1", operation, ResourceType.TOPIC, "t")
    assert allowed.may(*asked)
    assert not denied.may(*asked)


def test_a_super_user_may_do_everything() -> None:
    rules = decisions("DENY ALL TOPIC LITERAL * User:*", super_users=" User:root ; User:alice;")
    assert may_read(rules)
    assert rules.may_for_any("User:root", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC)
    assert not may_read(rules, principal="User:Alice")


def test_a_super_user_needs_a_type() -> None:
    with pytest.raises(ConfigError, match="Could not parse principal from `root`"):
        parse_super_users("User:a;root")


def test_the_rule_names_what_decides() -> None:
    rules = decisions(
        "ALLOW READ TOPIC PREFIXED ord",
        "ALLOW ALL TOPIC LITERAL orders User:*",
        "DENY READ TOPIC LITERAL secret User:alice 10.0.0.0/8",
        "DENY ALL TOPIC LITERAL * User:bob",
        super_users="User:root",
    )

    def rule(name: str, user: str = "User:alice", host: str = "10.0.0.1") -> str:
        return rules.rule(user, host, Operation.READ, ResourceType.TOPIC, name)

    assert rule("orders", "User:root") == "SuperUser"
    assert rule("other", "User:carol") == "DefaultDeny"
    assert decisions().rule("User:a", "::1", Operation.READ, ResourceType.TOPIC, "t") == "DefaultDeny"
    assert decisions(if_none=True).rule("User:a", "", Operation.READ, ResourceType.TOPIC, "t") == "DefaultAllow"
    assert rule("orders") == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=ord, patternType=PREFIXED, principal=User:alice, "
        "host=*, operation=READ, permissionType=ALLOW])"
    )
    assert rule("secret") == (
        "MatchingAcl(acl=StandardAcl[resourceType=TOPIC, resourceName=secret, patternType=LITERAL, principal=User:alice, "
        "host=10.0.0.0/8, operation=READ, permissionType=DENY])"
    )
    assert "resourceName=*, patternType=LITERAL, principal=User:bob" in rule("orders", "User:bob")


@given(st.lists(ACLS, max_size=12), USERS, CLIENTS, ASKED, TYPES, NAMES, st.booleans())
def test_a_decision_is_that_of_the_twin_that_scans_all_acls(
    acls: list[Acl], user: str, host: str, operation: Operation, kind: ResourceType, name: str, if_none: bool
) -> None:
    rules = Decisions(AclIndex(acls), (), allows_without_acls=if_none)
    expected = may(acls, user, host, operation, kind, name, if_none=if_none)
    assert rules.may(user, host, operation, kind, name) == expected
    assert rules.may_for_any(user, host, operation, kind) == may_for_any(
        acls, user, host, operation, kind, if_none=if_none
    )
    rule = rules.rule(user, host, operation, kind, name)
    assert rule.endswith("permissionType=ALLOW])") or rule == "DefaultAllow" if expected else "=ALLOW" not in rule


@pytest.mark.parametrize("pattern", ["LITERAL", "PREFIXED"])
def test_removing_an_acl_leaves_the_others_of_its_resource_as_CVE_2024_27309_asks(pattern: str) -> None:  # noqa: N802
    read, write, of_bob = (
        acl(text.format(pattern))
        for text in ("ALLOW READ TOPIC {} t", "DENY WRITE TOPIC {} t", "DENY READ TOPIC {} t User:bob")
    )
    index = AclIndex([read, write, of_bob, acl("ALLOW ALL TOPIC LITERAL * User:*")])
    rules = Decisions(index, (), allows_without_acls=False)

    def may_write() -> bool:
        return rules.may("User:alice", "10.0.0.1", Operation.WRITE, ResourceType.TOPIC, "t")

    index.remove(read)
    assert not may_write()
    assert not may_read(rules, "t", "User:bob")
    index.remove(write)
    assert may_write()
    assert not may_read(rules, "t", "User:bob")
    index.remove(of_bob)
    assert may_read(rules, "t", "User:bob")


@given(st.lists(st.tuples(st.booleans(), ACLS), max_size=30), st.lists(ACLS, max_size=3))
def test_an_index_equals_one_that_is_built_anew_after_every_change_as_CVE_2024_27309_asks(  # noqa: N802
    changes: list[tuple[bool, Acl]], first: list[Acl]
) -> None:
    index, twin = AclIndex(first), dict.fromkeys(first)
    everything = AclFilter(1, None, 1, None, None, 1, 1)
    for is_added, each in changes:
        if is_added:
            index.add(each)
            twin[each] = None
        else:
            index.remove(each)
            twin.pop(each, None)
        assert len(index) == len(twin)
        assert (each in index) == (each in twin)
    assert sorted(filter(None, selected(index, everything))) == sorted(twin)
    anew = AclIndex(twin)
    for kind in ResourceType:
        assert index.patterns(kind).lengths == anew.patterns(kind).lengths
        for each in twin:
            for host in ("10.0.0.1", "0:0:0:0:0:0:0:1"):
                assert index.bits(kind, each.name, each.principal, host) == anew.bits(
                    kind, each.name, each.principal, host
                )
    for each in twin:
        index.remove(each)
    assert not index
    assert all(not index.patterns(kind).literal and not index.patterns(kind).lengths for kind in ResourceType)


@given(st.lists(ACLS, max_size=15), FILTERS)
def test_a_filter_selects_what_the_twin_selects(acls: list[Acl], wanted: AclFilter) -> None:
    found = [each for each in selected(AclIndex(acls), wanted) if each is not None]
    assert sorted(found) == sorted({each for each in acls if is_selected(each, wanted)})


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of Kohort's code a call executes."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if "/kohort/security/" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("name", ["topic-000001", "topic-000001-x", "other"])
@pytest.mark.parametrize("user", ["User:1", "User:x"])
def test_a_decision_among_100_000_acls_takes_as_many_steps_as_among_ten(
    name: str, user: str, few: AclIndex, many: AclIndex
) -> None:
    def steps(index: AclIndex) -> int:
        rules = Decisions(index, (), allows_without_acls=False)

        def work() -> None:
            rules.may(user, "10.0.0.1", Operation.READ, ResourceType.TOPIC, name)
            rules.may_for_any(user, "10.0.0.1", Operation.WRITE, ResourceType.TOPIC)

        work()  # the address is parsed once
        return lines_of(work)

    assert (len(few), len(many)) == (10, 100_000)
    assert steps(few) == steps(many)


@pytest.fixture(scope="module")
def few() -> AclIndex:
    return AclIndex(_many(10))


@pytest.fixture(scope="module")
def many() -> AclIndex:
    gc.disable()  # it would look through all of them again and again, and find nothing
    try:
        return AclIndex(_many(100_000))
    finally:
        gc.enable()


def _many(count: int) -> list[Acl]:
    """ACLs of one resource and many users, of many resources, prefixes, hosts and ranges."""
    topic, literal, prefixed = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
    deny, allow, alter = Permission.DENY, Permission.ALLOW, Operation.ALTER
    made = []
    for number in range(count // 5):
        name, user, address = f"topic-{number:06}", f"User:{number}", f"11.{number >> 8}.{number & 255}.1"
        made += [
            Acl(topic, literal, name, "User:alice", "*", Operation.READ, allow),
            Acl(topic, prefixed, name, user, "*", Operation.WRITE, allow),
            Acl(topic, literal, "topic-000001", user, "*", alter, deny),
            Acl(topic, literal, "topic-000001", "User:1", address, alter, deny),
            Acl(topic, literal, "topic-000001", "User:1", f"{address}/24", Operation.READ, deny),
        ]
    return made
