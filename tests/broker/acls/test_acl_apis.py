"""CreateAcls, DescribeAcls and DeleteAcls: what they refuse, what becomes durable, and what bounds them."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.acls.authorizer import AclAuthorizer
from kohort.broker.ports import NoResponse
from kohort.model import limits
from kohort.model.errors import ErrorCode
from kohort.model.principals import Principal
from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.operations import Operation, ResourceType
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from tests.broker.acls.acl_requests import ANYTHING, AUTHORIZER, GOOD, NONE, create, creation, delete, describe, guarded
from tests.broker.harness import Asker, Harness, disk_store

INVALID, POLICY = int(ErrorCode.INVALID_REQUEST), int(ErrorCode.POLICY_VIOLATION)
NO_COLON = "(no colon is present separating the principal type from the principal name)"
LONG = f"The resource name, the principal and the host can have at most {limits.ACL_BYTES_MAX} bytes together"

# fmt: off
CREATIONS: list[tuple[dict[str, Any], tuple[int, str | None]]] = [
    ({}, NONE),
    ({"resource_type": 8}, (INVALID, "Invalid resourceType UNKNOWN")),
    ({"resource_type": -1}, (INVALID, "Invalid resourceType UNKNOWN")),
    ({"resource_pattern_type": 5}, (INVALID, "Invalid patternType UNKNOWN")),
    ({"operation": 16}, (INVALID, "Invalid operation UNKNOWN")),
    ({"permission_type": 4}, (INVALID, "Invalid permissionType UNKNOWN")),
    ({"resource_type": 8, "operation": 16}, (INVALID, "Invalid resourceType UNKNOWN")),
    ({"resource_type": 8, "resource_name": ""}, (INVALID, "Invalid empty resource name")),
    ({"resource_type": 1}, (-1, None)),
    ({"resource_pattern_type": 2}, (-1, None)),
    ({"resource_type": 4}, (INVALID, "The only valid name for the CLUSTER resource is kafka-cluster")),
    ({"resource_type": 4, "resource_name": "kafka-cluster", "resource_pattern_type": 4}, NONE),
    ({"resource_name": ""}, (INVALID, "Invalid empty resource name")),
    ({"resource_name": ".."}, NONE),
    ({"principal": "carol"}, (INVALID, f"Could not parse principal from `carol` {NO_COLON}")),
    ({"principal": "", "host": ""}, (INVALID, f"Could not parse principal from `` {NO_COLON}")),
    ({"principal": ":"}, NONE),
    ({"host": ""}, (INVALID, "Host pattern cannot be null or empty")),
    ({"host": "10.0.0.0/33"}, (INVALID, "Invalid CIDR notation '10.0.0.0/33': Value [33] not in range [0,32]")),
    ({"host": "10.0.0.5/8"}, NONE),
    ({"host": "any host"}, NONE),
    ({"resource_type": 3, "operation": 4}, NONE),
    # The bounds of Kohort. A change of 8 MiB ends Kafka's controller.
    ({"resource_name": "x" * limits.ACL_PREFIX_LENGTH_MAX, "resource_pattern_type": 4}, NONE),
    ({"resource_name": "x" * (limits.ACL_PREFIX_LENGTH_MAX + 1)}, NONE),
    ({"resource_name": "x" * (limits.ACL_PREFIX_LENGTH_MAX + 1), "resource_pattern_type": 4},
     (INVALID, f"A prefix of resource names can have at most {limits.ACL_PREFIX_LENGTH_MAX} characters")),
    ({"resource_name": "ü" * (limits.ACL_BYTES_MAX // 2)}, (INVALID, LONG)),
]
# fmt: on


@pytest.mark.parametrize(("changes", "answer"), CREATIONS)
def test_a_creation_is_checked_as_in_kafka(changes: dict[str, Any], answer: tuple[int, str | None]) -> None:
    harness = guarded()
    assert create(harness, GOOD, **changes) == [answer]
    assert len(describe(harness)) == (answer == NONE)


def test_each_creation_is_decided_by_itself_and_equal_ones_are_one() -> None:
    harness = guarded()
    bad, any_type = GOOD._replace(host=""), creation(GOOD, resource_type=1)
    request = m.CreateAclsRequest(creations=[creation(GOOD), creation(bad), any_type, creation(GOOD)])
    results = harness.ask(ApiKey.CREATE_ACLS, request).results
    assert [one.error_code for one in results] == [0, INVALID, -1, 0]
    assert create(harness, GOOD) == [NONE]
    assert describe(harness) == [GOOD]


@pytest.mark.parametrize("settings", [{}, AUTHORIZER])
@pytest.mark.parametrize("field", ["resource_type", "resource_pattern_type", "operation", "permission_type"])
def test_an_element_with_the_code_0_closes_the_connection(settings: dict[str, Any], field: str) -> None:
    harness = Harness(**settings)
    codes = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}
    wanted = ANYTHING | {codes.get(field, field): 0}
    creations = [creation(GOOD), creation(GOOD, **{field: 0})]
    for api, request in (
        (ApiKey.CREATE_ACLS, m.CreateAclsRequest(creations=creations)),
        (ApiKey.DELETE_ACLS, m.DeleteAclsRequest(filters=[m.DeleteAclsFilter(**wanted)])),
        (ApiKey.DESCRIBE_ACLS, m.DescribeAclsRequest(**wanted)),
    ):
        assert harness.ask(api, request) is NoResponse.CLOSE_CONNECTION


def test_without_an_authorizer_they_are_disabled() -> None:
    harness = Harness()
    disabled = int(ErrorCode.SECURITY_DISABLED)
    assert create(harness, GOOD, GOOD) == [(disabled, "No Authorizer is configured.")] * 2
    assert delete(harness, {}) == [(disabled, "No Authorizer is configured.", 0)]
    answer = harness.ask(ApiKey.DESCRIBE_ACLS, m.DescribeAclsRequest(**ANYTHING))
    assert (answer.error_code, answer.error_message) == (disabled, "No Authorizer is configured on the broker")


def test_the_acls_of_a_filter_are_described_by_resource() -> None:
    harness = guarded()
    others = [
        GOOD._replace(operation=Operation.ALL),
        GOOD._replace(pattern=PatternType.PREFIXED),
        GOOD._replace(name="*", principal="User:b", permission=Permission.DENY),
        GOOD._replace(resource_type=ResourceType.GROUP, host="10.0.0.0/8"),
    ]
    assert set(create(harness, GOOD, *others)) == {NONE}
    assert describe(harness) == sorted([GOOD, *others])
    assert describe(harness, resource_name_filter="t", pattern_type_filter=3) == sorted([GOOD, others[0], others[3]])
    assert describe(harness, resource_type_filter=2, resource_name_filter="tx", pattern_type_filter=2) == sorted(
        others[1:3]
    )
    assert describe(harness, principal_filter="User:b") == [others[2]]
    assert describe(harness, host_filter="10.0.0.0/8") == [others[3]]
    assert describe(harness, host_filter="10.0.0.1") == []
    assert describe(harness, operation=2) == [others[0]]
    assert describe(harness, resource_type_filter=9) == []
    answer = harness.ask(ApiKey.DESCRIBE_ACLS, m.DescribeAclsRequest(**ANYTHING))
    assert [len(each.acls) for each in answer.resources if each.resource_name == "t"].count(2) == 1


def test_each_filter_of_a_deletion_has_the_acls_that_were_there_before() -> None:
    harness = guarded()
    denied = GOOD._replace(permission=Permission.DENY)
    other = GOOD._replace(name="u")
    create(harness, GOOD, denied, other)
    wanted: list[dict[str, Any]] = [
        {"resource_name_filter": "t"},
        {"permission_type": 2},
        {"operation": 16},
        {"pattern_type_filter": 9},
    ]
    assert delete(harness, *wanted) == [
        (0, None, 2),
        (0, None, 1),
        (INVALID, "Unknown entryFilter.", 0),
        (INVALID, "Unknown patternFilter.", 0),
    ]
    assert describe(harness) == [other]


def test_a_change_has_an_effect_and_an_answer_when_it_is_durable() -> None:
    harness = guarded()
    authorizer = harness.broker.authorizer
    assert authorizer is not None
    asked = (Principal("a"), "10.0.0.1", Operation.READ, ResourceType.TOPIC, "t")
    harness.hold()
    answers = harness.begin(ApiKey.CREATE_ACLS, m.CreateAclsRequest(creations=[creation(GOOD)]))
    harness.node.settle()
    assert not answers
    assert not authorizer.may(*asked)
    harness.let_go()
    assert [one.error_code for one in answers[0].results] == [0]
    assert authorizer.may(*asked)
    assert authorizer.may(*asked)
    harness.hold()
    everything = m.DeleteAclsRequest(filters=[m.DeleteAclsFilter(**ANYTHING)])
    answers = harness.begin(ApiKey.DELETE_ACLS, everything)
    harness.node.settle()
    assert not answers
    again = harness.begin(ApiKey.CREATE_ACLS, m.CreateAclsRequest(creations=[creation(GOOD)]))
    assert authorizer.may(*asked)
    harness.let_go()
    assert len(answers[0].filter_results[0].matching_acls) == 1
    assert again[0].results[0].error_code == 0
    assert describe(harness) == [GOOD]  # created again while its deletion was in progress
    delete(harness, {})
    assert not authorizer.may(*asked)


def test_acls_are_there_after_a_restart(tmp_path: Path) -> None:
    node = VirtualNode()
    harness = guarded(store=disk_store(tmp_path, node), node=node)
    names = ["t", 'quoted "', "a:b", "ü", "line\n"]
    acls = [GOOD._replace(name=name, host=host) for name in names for host in ("*", "10.0.0.0/8")]
    create(harness, *acls)
    delete(harness, {"resource_name_filter": "t"})
    harness.store.close()
    later = guarded(store=disk_store(tmp_path, node), node=node)
    assert describe(later) == sorted(acls[2:])
    assert isinstance(later.broker.authorizer, AclAuthorizer)
    assert len(later.broker.authorizer.acls.index) == 8
    later.store.close()


def test_a_bad_stored_acl_is_set_aside_and_the_others_decide() -> None:
    from tests.broker.catalog.test_stored_values import setting, stored

    harness = stored(setting("acl", "[2,3]", {}), setting("acl", '[2,3,"t","User:a","*",3,3]', {}), **AUTHORIZER)
    assert describe(harness) == [GOOD]


def _numbered(count: int) -> list[Acl]:
    return [GOOD._replace(name=f"t{number}") for number in range(count)]


def test_a_request_creates_10_000_acls_at_most_and_deletes_as_many() -> None:
    harness = guarded()
    acls = _numbered(limits.ACL_CHANGES_MAX + 1)
    error = (POLICY, "Unable to perform excessively large batch operation.")
    empty = GOOD._replace(name="")
    results = create(harness, *acls, empty)
    assert results == [error] * len(acls) + [(INVALID, "Invalid empty resource name")]
    assert describe(harness) == []
    assert set(create(harness, *acls[1:], *acls[1:])) == {NONE}
    assert set(create(harness, *acls)) == {NONE}  # only one of them is new
    message = "Cannot remove more than 10000 acls in a single delete operation."
    nothing = {"resource_name_filter": "no"}
    assert delete(harness, {}, nothing) == [(INVALID, message, 0)] * 2
    assert len(describe(harness)) == len(acls)
    assert delete(harness, {"resource_name_filter": "t0"}) == [(0, None, 1)]
    assert delete(harness, {}) == [(0, None, 10_000)]


def test_the_number_of_acls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kohort.broker.acls.acl_apis.ACLS_MAX", 3)
    harness = guarded()
    first, second, third, fourth = _numbered(4)
    full = (POLICY, f"At most {limits.ACLS_MAX} access rules can be stored.")
    assert create(harness, first, second, third, fourth, first) == [NONE, NONE, NONE, full, NONE]
    assert create(harness, fourth) == [full]
    assert create(harness, third) == [NONE]
    delete(harness, {"resource_name_filter": "t0"})
    assert create(harness, fourth) == [NONE]


@pytest.mark.parametrize(("name", "most"), [("ACL_FILTER_STEPS_MAX", 100), ("ACL_MATCHES_MAX", 30)])
def test_a_deletion_looks_at_and_answers_a_bounded_number_of_acls(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka compares every filter with every ACL on its controller's only thread."""
    monkeypatch.setattr(f"kohort.broker.acls.acl_apis.{name}", most)
    harness = guarded()
    create(harness, *_numbered(20))
    message = "The filters look at too many access rules; name resources or principals in them, or send fewer."
    assert delete(harness, {}, {}) == [(INVALID, message, 0)] * 2
    assert len(describe(harness)) == 20
    by_name = [{"resource_name_filter": f"t{number}", "principal_filter": "User:a"} for number in range(4)]
    found = delete(harness, *by_name, *[{"resource_name_filter": "no", "operation": 3}] * 3)
    assert [count for _, _, count in found] == [1, 1, 1, 1, 0, 0, 0]


def test_others_have_their_turn_while_many_acls_are_looked_at() -> None:
    harness = guarded()
    create(harness, *_numbered(2_000))
    handlers = harness.broker.apis[1].handlers
    filters = [m.DeleteAclsFilter(**ANYTHING | {"principal_filter": "User:a", "operation": 4})] * 5
    for api, request in (
        (ApiKey.DESCRIBE_ACLS, m.DescribeAclsRequest(**ANYTHING)),
        (ApiKey.DELETE_ACLS, m.DeleteAclsRequest(filters=filters)),
    ):
        steps = handlers[api](request, Asker(3), lambda _response: None)
        assert len(list(islice(steps, 20))) == 20
        steps.close()
