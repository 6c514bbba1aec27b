"""The checks of the APIs of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from kohort.broker.access.checks import Check, Decision, Need, Refuse, TopicShape, Whole, at_cluster, element_class
from kohort.broker.access.requester import REFUSALS, SENTENCES, Requester, Steps, Work, finished
from kohort.broker.apis.request_rules import with_field
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ErrorCode
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_GROUPS_SINCE: Final = 8
"""The version of OffsetFetch that names several groups."""
_CODE_SINCE: Final = 2
"""The version of OffsetFetch with an error of the whole answer."""
_IDS_SINCE: Final = 10
_KEYS_SINCE: Final = 4
"""The version of FindCoordinator that names several keys."""
_SHARE_KEYS: Final = 2
_PROTOCOLS_SINCE: Final = 5
"""The version of SyncGroup with the protocol of the group."""
_NO_OFFSET: Final = {"committed_offset": -1}


class FetchedOffsets(Check):
    """
    OffsetFetch: each group as a whole, and its topics one by one; all topics of a group are filtered silently.

    A group with an error of its own is answered without the refused topics, as in Kafka.
    """

    needs = (
        Need(Operation.DESCRIBE, ResourceType.GROUP, "group_id", "each"),
        Need(Operation.DESCRIBE, ResourceType.TOPIC, "topics", "each; of all topics, the others are not shown"),
    )
    _ONE = TopicShape(ApiKey.OFFSET_FETCH, partitions="partition_indexes", index="", blank=_NO_OFFSET)
    _OF_GROUP = TopicShape(
        ApiKey.OFFSET_FETCH,
        partitions="partition_indexes",
        index="",
        answers="groups.topics",
        ids_since=_IDS_SINCE,
        blank=_NO_OFFSET,
    )

    def decide(self, request: m.OffsetFetchRequest, requester: Requester) -> Work[Decision | None]:
        if requester.api_version >= _GROUPS_SINCE:
            return self._decide_groups(request, requester)
        return self._decide_group(request, requester)

    def _decide_group(self, request: m.OffsetFetchRequest, requester: Requester) -> Steps[Decision | None]:
        if not self.needs[0].is_met(request, requester):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            if requester.api_version < _CODE_SINCE:
                topics = yield from self._ONE.refused(request.topics or (), code)
                return Decision(answer=m.OffsetFetchResponse(topics=topics))
            return Decision(answer=m.OffsetFetchResponse(error_code=code))
        kept, refusals = yield from self._topics(self._ONE, request.topics, requester)

        def complete(response: m.OffsetFetchResponse) -> Steps[m.OffsetFetchResponse]:
            topics = response.topics
            if kept is None:
                topics = yield from self._visible(self._ONE, topics, requester)
            more = () if response.error_code else refusals
            return msgspec.structs.replace(response, topics=[*topics, *more])

        if kept is None:
            return Decision(request, complete)
        return Decision(with_field(request, "topics", kept), complete) if refusals else None

    def _decide_groups(self, request: m.OffsetFetchRequest, requester: Requester) -> Steps[Decision | None]:
        allowed = yield from requester.allowed(
            Operation.DESCRIBE, ResourceType.GROUP, [group.group_id for group in request.groups]
        )
        if not [group for group in request.groups if group.topics != () or group.group_id not in allowed]:
            return None
        kept: list[Any] = []
        refused: list[Any] = []
        refusals: list[list[Any] | None] = []
        """For each kept group: its refused topics, None if its topics are filtered."""
        for number, group in enumerate(request.groups, 1):
            if number % HANDLER_STEP == 0:
                yield
            if group.group_id not in allowed:
                code = ErrorCode.GROUP_AUTHORIZATION_FAILED
                refused.append(m.OffsetFetchResponseGroup(group_id=group.group_id, error_code=code))
                continue
            of_group: list[Any] | None = None if group.topics is None else []
            if group.topics:
                topics, of_group = yield from self._topics(self._OF_GROUP, group.topics, requester)
                group = with_field(group, "topics", topics) if of_group else group
            refusals.append(of_group)
            kept.append(group)
        if not refused and None not in refusals and refusals.count([]) == len(refusals):
            return None
        if not kept:
            return Decision(answer=m.OffsetFetchResponse(groups=refused))

        def complete(response: m.OffsetFetchResponse) -> Steps[m.OffsetFetchResponse]:
            groups: list[Any] = []
            for number, (group, of_group) in enumerate(zip(response.groups, refusals, strict=True), 1):
                if number % HANDLER_STEP == 0:
                    yield
                topics = group.topics
                if of_group is None and topics:
                    topics = yield from self._visible(self._OF_GROUP, topics, requester)
                    groups.append(msgspec.structs.replace(group, topics=topics))
                elif of_group and not group.error_code:
                    groups.append(msgspec.structs.replace(group, topics=[*topics, *of_group]))
                else:
                    groups.append(group)
            return msgspec.structs.replace(response, groups=[*groups, *refused])

        return Decision(with_field(request, "groups", tuple(kept)), complete)

    def _topics(
        self, shape: TopicShape, topics: Sequence[Any] | None, requester: Requester
    ) -> Steps[tuple[tuple[Any, ...] | None, list[Any]]]:
        """The topics to fetch, None for all, and the answers of those that are refused."""
        if not topics:
            return None if topics is None else (), []
        names = yield from shape.names(topics, requester)
        known = [name for name in names if name is not None]
        allowed: set[str | None] = {
            None,
            *(yield from requester.allowed(Operation.DESCRIBE, ResourceType.TOPIC, known)),
        }
        pairs = list(zip(topics, names, strict=True))
        refused = [topic for topic, name in pairs if name not in allowed]
        refusals = yield from shape.refused(refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return tuple(topic for topic, name in pairs if name in allowed), refusals

    def _visible(self, shape: TopicShape, topics: Sequence[Any], requester: Requester) -> Steps[list[Any]]:
        names = yield from shape.names(topics, requester)
        known = [name for name in names if name is not None]
        allowed = yield from requester.allowed(Operation.DESCRIBE, ResourceType.TOPIC, known, logs_refusal=False)
        return [topic for topic, name in zip(topics, names, strict=True) if name in allowed]


class FoundCoordinators(Check):
    """FindCoordinator: by the kind of the keys; a key of a share partition is for brokers."""

    _KINDS: Final = {
        0: (Operation.DESCRIBE, ResourceType.GROUP),
        1: (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
    }
    needs = (
        Need(Operation.DESCRIBE, ResourceType.GROUP, "coordinator_keys", "for a group"),
        Need(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "coordinator_keys", "for a transactional id"),
        at_cluster(Operation.CLUSTER_ACTION, "for a share partition"),
    )

    def decide(self, request: m.FindCoordinatorRequest, requester: Requester) -> Steps[Decision | None]:
        has_keys = requester.api_version >= _KEYS_SINCE
        keys: Sequence[str] = request.coordinator_keys if has_keys else (request.key,)
        if request.key_type == _SHARE_KEYS:
            if requester.may_at_cluster(Operation.CLUSTER_ACTION):
                return None
            allowed: set[str] = set()
            code = REFUSALS[ResourceType.CLUSTER]
        elif request.key_type in self._KINDS:
            operation, resource_type = self._KINDS[request.key_type]
            allowed = yield from requester.allowed(operation, resource_type, keys)
            code = REFUSALS[resource_type]
        else:
            return None
        refused = [key for key in keys if key not in allowed]
        if not refused:
            return None
        # Kafka gives one of several keys no sentence, unless all of them are refused for the cluster.
        has_message = not has_keys or request.key_type == _SHARE_KEYS
        message = SENTENCES[code] if has_message else ""
        fields: dict[str, Any] = {"error_code": code, "error_message": message, "node_id": -1, "port": -1}
        if not has_keys:
            return Decision(answer=m.FindCoordinatorResponse(**fields))
        refusals = [m.FindCoordinatorResponseCoordinator(key=key, **fields) for key in refused]
        if len(refused) == len(keys):
            return Decision(answer=m.FindCoordinatorResponse(coordinators=refusals))

        def complete(response: m.FindCoordinatorResponse) -> m.FindCoordinatorResponse:
            return msgspec.structs.replace(response, coordinators=[*response.coordinators, *refusals])

        kept = tuple([key for key in keys if key in allowed])
        return Decision(with_field(request, "coordinator_keys", kept), complete)


class SyncedGroup(Whole):
    """SyncGroup: from version 5 on the handler refuses a request without a protocol before anything else."""

    def decide(self, request: m.SyncGroupRequest, requester: Requester) -> Steps[Decision] | None:
        if requester.api_version >= _PROTOCOLS_SINCE and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return None
        return super().decide(request, requester)


class Subscribed(Check):
    """A heartbeat: one refused topic among the names that a member subscribes to refuses the whole request."""

    def __init__(self, refuse: Refuse, *, has_patterns: bool = False) -> None:
        self._refuse = refuse
        names = Need(Operation.DESCRIBE, ResourceType.TOPIC, "subscribed_topic_names", "all names")
        found = names._replace(detail="each that a regular expression finds, or it is not found")
        self.needs = (names, found) if has_patterns else (names,)

    def decide(self, request: Any, requester: Requester) -> Steps[Decision | None] | None:
        names = request.subscribed_topic_names
        return self._decide(names, request, requester) if names else None

    def _decide(self, names: Sequence[str], request: Any, requester: Requester) -> Steps[Decision | None]:
        distinct = set(names)
        allowed = yield from requester.allowed(Operation.DESCRIBE, ResourceType.TOPIC, names)
        if len(allowed) == len(distinct):
            return None
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return Decision(answer=(yield from finished(self._refuse(request, code, requester))))


class DescribedTopics(Check):
    """
    A described group has an error instead of its members if they are assigned a topic that the user may not describe.

    Args:
        message: of the error.
        has_names: whether the topics that members subscribe to count, too.
    """

    needs = (Need(Operation.DESCRIBE, ResourceType.TOPIC, detail="all that are assigned to members"),)

    def __init__(self, api: ApiKey, message: str, *assignments: str, has_names: bool = True) -> None:
        self._described = element_class(api, "groups")
        self._message = message
        self._assignments = assignments
        self._has_names = has_names

    def decide(self, request: Any, requester: Requester) -> Decision:
        def complete(response: Any) -> Steps[Any]:
            groups = []
            for number, group in enumerate(response.groups, 1):
                if number % HANDLER_STEP == 0:
                    yield
                names = set(self._names(group))
                allowed = yield from requester.allowed(
                    Operation.DESCRIBE, ResourceType.TOPIC, names, logs_refusal=False
                )
                groups.append(group if len(allowed) == len(names) else self._refused(group))
            return msgspec.structs.replace(response, groups=groups)

        return Decision(request, complete)

    def _names(self, group: Any) -> Iterator[str]:
        for member in group.members:
            if self._has_names:
                yield from member.subscribed_topic_names
            for assignment in self._assignments:
                for topic in getattr(member, assignment).topic_partitions:
                    yield topic.topic_name

    def _refused(self, group: Any) -> Any:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._described(group_id=group.group_id, error_code=code, error_message=self._message)
