"""The value of an ACL. Source: Kafka AclBinding, StandardAcl."""

from enum import IntEnum
from typing import Final, NamedTuple

from kohort.security.operations import Operation, ResourceType


class PatternType(IntEnum):
    """How an ACL names resources, by Kafka's code."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL does, by Kafka's code. Source: Kafka AclPermissionType."""

    DENY = 2
    ALLOW = 3


ANY_NAME: Final = "*"
"""The literal name of all resources of a type."""
ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"


class Acl(NamedTuple):
    """
    One ACL.

    Attributes:
        name: of the resource, or its beginning for PREFIXED.
        principal: with its type, "User:alice".
        host: an address in Java's text, a CIDR range, or `*`. Other texts match nothing.
    """

    resource_type: ResourceType
    pattern: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """The text of Kafka's audit log."""
        return (
            f"StandardAcl[resourceType={self.resource_type.name}, resourceName={self.name}, "
            f"patternType={self.pattern.name}, principal={self.principal}, host={self.host}, "
            f"operation={self.operation.name}, permissionType={self.permission.name}]"
        )
