"""A broker with an authorizer, and requests of the APIs of ACLs in short."""

from typing import Any

from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain
from tests.broker.harness import Asker, Harness

AUTHORIZER: dict[str, Any] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:admin;User:ANONYMOUS",
}
"""An authorizer that lets the tests' own requests pass."""
GOOD = Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:a", "*", Operation.READ, Permission.ALLOW)
NONE = (0, "")


def guarded(**settings: Any) -> Harness:
    """A broker with an authorizer."""
    return Harness(**AUTHORIZER | settings)


def creation(acl: Acl, **changes: Any) -> m.CreateAclsRequestAclCreation:
    fields: dict[str, Any] = {
        "resource_type": acl.resource_type,
        "resource_name": acl.name,
        "resource_pattern_type": acl.pattern,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission,
    }
    return m.CreateAclsRequestAclCreation(**fields | changes)


def create(harness: Harness, *acls: Acl, **changes: Any) -> list[tuple[int, str | None]]:
    """Code and message of each creation."""
    request = m.CreateAclsRequest(creations=[creation(acl, **changes) for acl in acls])
    answer = harness.ask(ApiKey.CREATE_ACLS, request) if len(acls) < 1_000 else _ask_long(harness, request)
    return [(one.error_code, one.error_message) for one in answer.results]


def _ask_long(harness: Harness, request: m.CreateAclsRequest) -> Any:
    """Ask with a request that the server would read in steps."""
    answers: list[Any] = []
    steps = harness.broker.apis[1].handlers[ApiKey.CREATE_ACLS](request, Asker(3), answers.append)
    response = drain(steps)
    harness.node.settle()
    return response or answers[0]


ANYTHING: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


def describe(harness: Harness, **wanted: Any) -> list[Acl]:
    answer = harness.ask(ApiKey.DESCRIBE_ACLS, m.DescribeAclsRequest(**ANYTHING | wanted))
    assert (answer.error_code, answer.error_message) == NONE
    return sorted(
        Acl(
            ResourceType(each.resource_type),
            PatternType(each.pattern_type),
            each.resource_name,
            acl.principal,
            acl.host,
            Operation(acl.operation),
            Permission(acl.permission_type),
        )
        for each in answer.resources
        for acl in each.acls
    )


def delete(harness: Harness, *filters: dict[str, Any]) -> list[tuple[int, str | None, int]]:
    """Code, message and number of ACLs of each filter."""
    request = m.DeleteAclsRequest(filters=[m.DeleteAclsFilter(**ANYTHING | each) for each in filters])
    results = harness.ask(ApiKey.DELETE_ACLS, request).filter_results
    return [(one.error_code, one.error_message, len(one.matching_acls)) for one in results]
