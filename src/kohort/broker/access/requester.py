"""The user of one request, as the checks of its API see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar
from uuid import UUID

from kohort.machine.gradual import HANDLER_STEP, LOOK_STEP, chunks
from kohort.model.errors import ErrorCode
from kohort.security.authorization import Authorizer
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType
from kohort.wire.generated.gradual import drain

if TYPE_CHECKING:
    from kohort.broker.catalog.catalog import Catalog
    from kohort.broker.configs.definitions import BrokerConfig
    from kohort.model.context import RequestContext

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Work in steps that returns a value: a request may name many resources."""

Work: TypeAlias = T | Steps[T]
"""A value, or work in steps that returns it."""

REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The code of a refusal by the kind of resource."""

SENTENCES: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Delegation Token authorization failed.",
}
"""Kafka's sentences of these codes."""

OPERATIONS_OF: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
"""The operations that answers name for a resource. Source: Kafka AclEntry.supportedOperations."""


def finished(work: Work[T]) -> Steps[T]:
    """Take the steps of a work, if it has any."""
    return (yield from work) if isinstance(work, Generator) else work


def result_of(work: Work[T]) -> T:
    """Take the steps of a work at once."""
    return drain(work) if isinstance(work, Generator) else work


class Resources:
    """The topics and the configuration of the broker, as checks see them."""

    def __init__(self, catalog: Catalog, config: BrokerConfig) -> None:
        self.catalog = catalog
        self.creates_topics = config.get_bool("auto.create.topics.enable")

    def name_of(self, topic_id: UUID | None) -> str | None:
        """The name of a topic by its id; None if there is no such topic."""
        topic = self.catalog.topic_by_id(topic_id) if topic_id is not None else None
        return None if topic is None else topic.name


class Requester:
    """The user who has sent a request, and what it may do."""

    __slots__ = ("_authorizer", "_host", "_principal", "api_version", "is_repeating", "resources")

    def __init__(self, authorizer: Authorizer, resources: Resources, context: RequestContext) -> None:
        self._authorizer = authorizer
        self._principal = context.principal
        self._host = context.client_host.removeprefix("/")
        self.api_version = context.api_version
        self.resources = resources
        self.is_repeating = False
        """Whether the checks are made once more for the same request, whose refusal is logged already."""

    def may(
        self, operation: Operation, resource_type: ResourceType, name: str, *, logs_refusal: bool = True, count: int = 1
    ) -> bool:
        """See `kohort.security.authorization.Authorizer.may`."""
        is_first = not self.is_repeating
        return self._authorizer.may(
            self._principal,
            self._host,
            operation,
            resource_type,
            name,
            logs_refusal=logs_refusal and is_first,
            logs_permission=is_first,
            count=count,
        )

    def may_at_cluster(self, operation: Operation, *, logs_refusal: bool = True) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, logs_refusal=logs_refusal)

    def may_for_any(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the user may do this to at least one resource of the type."""
        return self._authorizer.may_for_any(self._principal, self._host, operation, resource_type)

    def allowed(
        self, operation: Operation, resource_type: ResourceType, names: Iterable[str], *, logs_refusal: bool = True
    ) -> Steps[set[str]]:
        """The names to which the user may do this; each name is decided once. Source: Kafka AuthHelper.filterByAuthorized."""
        counts: Counter[str] = Counter()
        left = iter(names)
        while some := list(islice(left, LOOK_STEP)):
            counts.update(some)
            if len(some) == LOOK_STEP:
                yield
        found: set[str] = set()
        for few in chunks(list(counts), HANDLER_STEP):
            found.update(
                [
                    name
                    for name in few
                    if self.may(operation, resource_type, name, logs_refusal=logs_refusal, count=counts[name])
                ]
            )
            if len(few) == HANDLER_STEP:
                yield
        return found

    def few_allowed(self, operation: Operation, resource_type: ResourceType, names: Collection[str]) -> set[str]:
        """As `allowed`, in one step."""
        if len(names) == 1:
            return {name for name in names if self.may(operation, resource_type, name)}
        counts = Counter(names)
        return {name for name, count in counts.items() if self.may(operation, resource_type, name, count=count)}

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """The operations that the user may do to a resource, one bit each. Source: Kafka AuthHelper.authorizedOperations."""
        bits = 0
        asker, quietly = (self._principal, self._host), {"logs_refusal": False, "logs_permission": False}
        for operation in OPERATIONS_OF[resource_type]:
            if self._authorizer.may(*asker, operation, resource_type, name, **quietly):
                bits |= 1 << operation
        return bits
