"""A plain twin of the authorizer, which looks at every ACL, and Hypothesis' ACLs and questions."""

from collections.abc import Collection
from ipaddress import ip_address, ip_network

from hypothesis import strategies as st

from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.acls.filters import ANY, MATCH, AclFilter
from kohort.security.operations import Operation, ResourceType

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

NAMES = st.text("ab*", min_size=1, max_size=4)
"""Short names of few letters: prefixes of length 0, 1, equal and longer all occur."""
USERS = st.sampled_from(["User:a", "User:b", "User:*", "Group:a"])
CLIENTS = st.sampled_from(["10.0.0.1", "10.9.0.1", "11.0.0.1", "0:0:0:0:0:0:0:1"])
HOSTS = CLIENTS | st.sampled_from(
    ["*", "10.0.0.0/8", "10.1.1.1/8", "10.0.0.0/16", "0.0.0.0/0", "::/0", "10.0.0.1/32", "nobody"]
)
TYPES = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from(
    [*map(Operation, (2, 3, 4, 8, 10, 11)), Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE]
)
ASKED = OPERATIONS.filter(lambda operation: operation != Operation.ALL)
ACLS = st.builds(Acl, TYPES, st.sampled_from(PatternType), NAMES, USERS, HOSTS, OPERATIONS, st.sampled_from(Permission))
FILTERS = st.builds(
    AclFilter,
    st.sampled_from([1, 2, 3, 4]),
    st.none() | NAMES | st.just(""),
    st.sampled_from([1, 2, 3, 4]),
    st.none() | USERS,
    st.none() | HOSTS | st.just("10.0.0.0/77"),
    st.sampled_from([1, 2, 3, 8]),
    st.sampled_from([1, 2, 3]),
)


def applies(acl: Acl, name: str) -> bool:
    if acl.pattern == PatternType.PREFIXED:
        return name.startswith(acl.name)
    return acl.name in (name, "*")


def concerns(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal not in (principal, "User:*"):
        return False
    if "/" in acl.host:
        return ip_address(host) in ip_network(acl.host, strict=False)
    return acl.host in (host, "*")


def may(
    acls: Collection[Acl],
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
    *,
    if_none: bool,
) -> bool:
    """The decision of section "Authorizer": of the ACLs that match, a DENY, else an ALLOW, else whether there is none."""
    of_resource = [acl for acl in acls if acl.resource_type == resource_type and applies(acl, name)]
    if not of_resource:
        return if_none
    matching = [acl for acl in of_resource if concerns(acl, principal, host)]
    if any(acl.permission == Permission.DENY and acl.operation in (operation, Operation.ALL) for acl in matching):
        return False
    allowing = {operation, Operation.ALL} | IMPLIED.get(operation, set())
    return any(acl.permission == Permission.ALLOW and acl.operation in allowing for acl in matching)


def may_for_any(
    acls: Collection[Acl],
    principal: str,
    host: str,
    operation: Operation,
    resource_type: ResourceType,
    *,
    if_none: bool,
) -> bool:
    """As Kafka's default method of the interface: first the name "hardcode", then all ACLs."""
    if may(acls, principal, host, operation, resource_type, "hardcode", if_none=if_none):
        return True
    own = [
        acl
        for acl in acls
        if acl.resource_type == resource_type
        and concerns(acl, principal, host)
        and acl.operation in (operation, Operation.ALL)
    ]
    denied = {(acl.pattern, acl.name) for acl in own if acl.permission == Permission.DENY}
    allowed = {(acl.pattern, acl.name) for acl in own if acl.permission == Permission.ALLOW}
    if (PatternType.LITERAL, "*") in denied:
        return False
    if (PatternType.LITERAL, "*") in allowed:
        return True
    return any(
        not (pattern == PatternType.LITERAL and (pattern, name) in denied)
        and not any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
        for pattern, name in allowed
    )


def is_selected(acl: Acl, wanted: AclFilter) -> bool:
    """Whether a filter matches an ACL. Source: the methods `matches` of Kafka's filters."""
    if wanted.resource_type not in (ANY, acl.resource_type):
        return False
    if wanted.pattern not in (ANY, MATCH, acl.pattern):
        return False
    if wanted.name is not None and not (
        applies(acl, wanted.name) if wanted.pattern == MATCH else acl.name == wanted.name
    ):
        return False
    return (
        wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and wanted.operation in (ANY, acl.operation)
        and wanted.permission in (ANY, acl.permission)
    )
