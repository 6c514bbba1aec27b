"""The port through which the broker asks whether a user may do something."""

from typing import Protocol, Self

from kohort.model.principals import Principal
from kohort.security.operations import Operation, ResourceType
from kohort.wire.apis import ApiKey


class Authorizer(Protocol):
    """Decides; it never waits and changes nothing but its audit log and counters. Source: Kafka Authorizer."""

    def for_api(self, api: ApiKey, /) -> Self:
        """The same authorizer for the requests of one API, which its audit log and its counters name."""

    @property
    def version(self) -> int:
        """A number that another change of the rules raises: what is allowed stays so under the same version."""

    @property
    def logs_permissions(self) -> bool:
        """Whether each permission is logged, so that none may be remembered instead of asked for."""

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
        """
        Whether the user may do this to the resource.

        Args:
            host: the client's address in Java's text, without the slash.
            name: of the resource, taken literally.
            logs_refusal: false for the first of two alternatives, the filters of lists, and authorized operations.
            logs_permission: false for authorized operations.
            count: how often the request names the resource, for the audit log.
        """

    def may_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, /
    ) -> bool:
        """Whether the user may do this to at least one resource of the type. Source: authorizeByResourceType."""
