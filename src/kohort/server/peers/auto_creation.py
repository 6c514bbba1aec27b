"""
Topics that are created because a client has named them, or because a coordinator needs them, at the controller.

The topics of one request of a client are created with its rights, internal topics with those of this node, as in Kafka.

Source: Kafka DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kohort.broker.ports import Context
from kohort.broker.topics.creation import NewTopic
from kohort.model.errors import ErrorCode
from kohort.model.ids import INTERNAL_TOPICS
from kohort.model.limits import AUTO_CREATIONS_MAX
from kohort.model.principals import Principal
from kohort.runtime.ports import Defer
from kohort.server.peers.forwarding import Forwarding
from kohort.server.peers.peer import Lost
from kohort.server.peers.peers import REQUEST_MS, Directory
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_log: Final = logging.getLogger("kohort.server")

_VERSION: Final = 7
_Asker = tuple[Principal, str, str]
"""User, address and client id."""


class AutoCreation:
    """Asks the controller for topics; those of a turn and of one asker are one request."""

    def __init__(self, directory: Directory, forwarding: Forwarding, defer: Defer) -> None:
        self._directory = directory
        self._forwarding = forwarding
        self._defer = defer
        self._asked: set[str] = set()
        """Topics that the controller has not answered about."""
        self._gathered: dict[_Asker | None, tuple[Context | None, list[NewTopic]]] = {}

    def create(self, topic: NewTopic, context: Context | None) -> bool:
        """As `TopicCreation.elsewhere`."""
        if self._directory.controller == self._directory.node_id:
            return False
        if topic.name in self._asked or len(self._asked) >= AUTO_CREATIONS_MAX:
            return True
        self._asked.add(topic.name)
        if topic.name in INTERNAL_TOPICS:
            context = None
        asker = None if context is None else (context.principal, context.client_host, context.client_id)
        if not self._gathered:
            self._defer(self._send)
        self._gathered.setdefault(asker, (context, []))[1].append(topic)
        return True

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for context, topics in gathered.values():
            done = partial(self._on_answer, [topic.name for topic in topics])
            self._forwarding.ask_controller(ApiKey.CREATE_TOPICS, _VERSION, _request(topics), done, context)

    def _on_answer(self, names: Sequence[str], answer: Any) -> None:
        self._asked.difference_update(names)
        if isinstance(answer, Lost):
            _log.warning("topic.not_created topics=%d error=%r", len(names), answer.reason)
            return
        for topic in answer.topics:
            if topic.error_code and topic.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                level = logging.ERROR if topic.name in INTERNAL_TOPICS else logging.INFO
                _log.log(level, "topic.not_created topic=%s error=%r", topic.name, topic.error_message)


def _request(topics: Sequence[NewTopic]) -> m.CreateTopicsRequest:
    return m.CreateTopicsRequest(
        timeout_ms=REQUEST_MS,
        topics=[
            m.CreateTopicsRequestCreatableTopic(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                configs=[
                    m.CreateTopicsRequestCreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
    )
