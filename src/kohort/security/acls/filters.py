"""
Filters of ACLs, and the ACLs that one selects.

Source: Kafka AclBindingFilter, ResourcePatternFilter, AccessControlEntryFilter.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from kohort.security.acls.acl import ANY_NAME, Acl
from kohort.security.acls.index import LITERAL, PREFIXED, AclIndex, acls_of
from kohort.security.operations import ResourceType

ANY: Final = 1
"""Any type, pattern, operation or permission, by Kafka's code."""
MATCH: Final = 2
"""All patterns that apply to a name, by Kafka's code."""


class AclFilter(NamedTuple):
    """
    A filter: an ACL is selected if every field matches. None, and `ANY`, match everything; other texts and codes match exactly.

    Attributes:
        pattern: for LITERAL, PREFIXED and ANY the name has to be equal; for MATCH the ACL has to apply to the name.
    """

    resource_type: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int


def selected(index: AclIndex, wanted: AclFilter) -> Iterator[Acl | None]:
    """
    The ACLs of an index that a filter selects, and None for each step without one, so that a caller can bound the steps.

    Changes of the index meanwhile are allowed: ACLs that are added may be missing.
    """
    for resource_type in ResourceType if wanted.resource_type == ANY else (wanted.resource_type,):
        for pattern, name in _patterns(index, wanted, resource_type):
            principals = index.patterns(resource_type).of(pattern).get(name, {})
            for principal in list(principals) if wanted.principal is None else (wanted.principal,):
                hosts = principals.get(principal)
                yield None
                if hosts is None:
                    continue
                for host in hosts.all_texts() if wanted.host is None else (wanted.host,):
                    yield None
                    for acl in acls_of(resource_type, pattern, name, principal, host, hosts.bits_of(host)):
                        if wanted.operation in (ANY, acl.operation) and wanted.permission in (ANY, acl.permission):
                            yield acl


def _patterns(index: AclIndex, wanted: AclFilter, resource_type: int) -> Iterator[tuple[int, str]]:
    """The patterns whose ACLs may be selected."""
    patterns = index.patterns(resource_type)
    kinds = (LITERAL, PREFIXED) if wanted.pattern in (ANY, MATCH) else (wanted.pattern,)
    if wanted.name is None and wanted.principal is not None:
        yield from (each for each in list(index.patterns_of(resource_type, wanted.principal)) if each[0] in kinds)
    elif wanted.name is None:
        for kind in kinds:
            yield from ((kind, name) for name in list(patterns.of(kind)))
    elif wanted.pattern == MATCH:
        yield from ((LITERAL, each) for each in {wanted.name: 0, ANY_NAME: 0})
        yield from ((PREFIXED, wanted.name[:length]) for length in list(patterns.lengths) if length <= len(wanted.name))
    else:
        yield from ((kind, wanted.name) for kind in kinds)
