"""The checks of the APIs of share group offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from kohort.broker.access.checks import Check, Complete, Decision, Need, TopicShape, adding
from kohort.broker.access.requester import Requester, Steps
from kohort.broker.apis.request_rules import with_field
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import ErrorCode
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class DescribedShareOffsets(Check):
    """DescribeShareGroupOffsets: the topics of each group one by one; all topics of a group are filtered silently."""

    needs = (Need(Operation.DESCRIBE, ResourceType.TOPIC, "topics", "each; of all topics, the others are not shown"),)
    _SHAPE = TopicShape(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        index="",
        answers="groups.topics",
        name="topic_name",
        has_message=True,
        blank={"start_offset": -1, "lag": -1},
    )

    def decide(self, request: m.DescribeShareGroupOffsetsRequest, requester: Requester) -> Steps[Decision | None]:
        groups: list[Any] = []
        refusals: list[list[Any] | None] = []
        """For each group: its refused topics, None if its topics are filtered."""
        for number, group in enumerate(request.groups, 1):
            if number % HANDLER_STEP == 0:
                yield
            refused: list[Any] | None = None
            if group.topics is not None:
                names = (topic.topic_name for topic in group.topics)
                allowed = yield from requester.allowed(Operation.DESCRIBE, ResourceType.TOPIC, names)
                left = [topic for topic in group.topics if topic.topic_name not in allowed]
                refused = yield from self._SHAPE.refused(left, _REFUSED)
                kept = tuple([topic for topic in group.topics if topic.topic_name in allowed])
                group = with_field(group, "topics", kept) if refused else group
            refusals.append(refused)
            groups.append(group)
        return Decision(with_field(request, "groups", tuple(groups)), self._completing(refusals, requester))

    def _completing(self, refusals: Sequence[list[Any] | None], requester: Requester) -> Complete:
        def complete(response: Any) -> Steps[Any]:
            groups = []
            for number, (group, refused) in enumerate(zip(response.groups, refusals, strict=True), 1):
                if number % HANDLER_STEP == 0:
                    yield
                topics = group.topics
                if refused is None:
                    names = (topic.topic_name for topic in topics)
                    allowed = yield from requester.allowed(
                        Operation.DESCRIBE, ResourceType.TOPIC, names, logs_refusal=False
                    )
                    topics = [topic for topic in topics if topic.topic_name in allowed]
                groups.append(msgspec.structs.replace(group, topics=[*topics, *(refused or ())]))
            return msgspec.structs.replace(response, groups=groups)

        return complete


class AlteredShareOffsets(Check):
    """AlterShareGroupOffsets: topics one by one; a refused one is answered with its id."""

    needs = (Need(Operation.READ, ResourceType.TOPIC, "topics", "each"),)
    _SHAPE = TopicShape(ApiKey.ALTER_SHARE_GROUP_OFFSETS, answers="responses", name="topic_name", has_message=True)

    def decide(self, request: m.AlterShareGroupOffsetsRequest, requester: Requester) -> Steps[Decision | None]:
        names = (topic.topic_name for topic in request.topics)
        allowed = yield from requester.allowed(Operation.READ, ResourceType.TOPIC, names)
        left = [topic for topic in request.topics if topic.topic_name not in allowed]
        if not left:
            return None
        refused = yield from self._SHAPE.refused(left, _REFUSED)
        found = [requester.resources.catalog.topic(topic.topic_name) for topic in left]
        add = adding(
            "responses",
            [
                answer if topic is None else msgspec.structs.replace(answer, topic_id=topic.topic_id)
                for answer, topic in zip(refused, found, strict=True)
            ],
        )
        kept = tuple([topic for topic in request.topics if topic.topic_name in allowed])
        return Decision(
            with_field(request, "topics", kept), lambda response: response if response.error_code else add(response)
        )
