"""The permissions of Fetch and ShareFetch. A session names its topics once, and each of its requests is decided anew."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kohort.broker.access.requester import Requester, Resources
from kohort.broker.partitions.partitions import Partition
from kohort.broker.ports import Context
from kohort.broker.records.fetch_broker import Find, is_of_replica
from kohort.broker.records.fetch_sessions import SessionPartition
from kohort.model.errors import ErrorCode
from kohort.security.authorization import Authorizer
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.generated.gradual import drain


class FetchPermits:
    """
    Consumers need READ on each topic, and replicas CLUSTER_ACTION. See `kohort.broker.records.fetch_broker.Permit`.

    A request that waits was decided when it arrived. Source: Kafka KafkaApis.handleFetchRequest.
    """

    def __init__(self, authorizer: Authorizer, resources: Resources) -> None:
        self._authorizer = authorizer.for_api(ApiKey.FETCH)
        self._resources = resources

    def __call__(
        self, find: Find, request: m.FetchRequest, context: Context, partitions: Sequence[SessionPartition]
    ) -> Find:
        requester = Requester(self._authorizer, self._resources, context)
        if is_of_replica(request, context.api_version):
            return find if requester.may_at_cluster(Operation.CLUSTER_ACTION) else _refuse
        names = {wanted: self._name(wanted) for wanted in partitions}
        known = [name for name in names.values() if name is not None]
        allowed: set[str | None] = {None, *drain(requester.allowed(Operation.READ, ResourceType.TOPIC, known))}

        def find_allowed(wanted: SessionPartition) -> Partition | ErrorCode:
            return find(wanted) if names[wanted] in allowed else ErrorCode.TOPIC_AUTHORIZATION_FAILED

        return find_allowed

    def _name(self, wanted: SessionPartition) -> str | None:
        """The name of a topic; None for an id of which there is no topic, or no longer one."""
        return self._resources.name_of(wanted.topic_id) if wanted.topic_id else wanted.name or ""


class ShareFetchPermits:
    """Members of share groups need READ on each topic. See `kohort.broker.shares.share_broker.ReadableTopics`."""

    def __init__(self, authorizer: Authorizer, resources: Resources) -> None:
        self._authorizer = authorizer.for_api(ApiKey.SHARE_FETCH)
        self._resources = resources

    def __call__(self, context: Context, names: Collection[str]) -> Collection[str]:
        requester = Requester(self._authorizer, self._resources, context)
        allowed: set[str] = drain(requester.allowed(Operation.READ, ResourceType.TOPIC, names))
        return allowed


def _refuse(_wanted: SessionPartition) -> ErrorCode:
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED
