"""Requests of the control API to the brokers of its own process: to their handlers, without sockets, permissions or faults."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any, Final

from kohort.broker.broker import Broker
from kohort.control.web.problems import Problem
from kohort.model.errors import ErrorCode
from kohort.model.fixed_context import FixedContext, take_all
from kohort.server.node import Node
from kohort.wire.apis import ApiKey

CLIENT_ID: Final = "kohort-control"
ELSEWHERE: Final = frozenset({int(ErrorCode.NOT_COORDINATOR), int(ErrorCode.NOT_LEADER_OR_FOLLOWER)})
"""Another broker may know."""
LATER: Final = frozenset(
    {
        int(ErrorCode.COORDINATOR_NOT_AVAILABLE),
        int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        int(ErrorCode.LEADER_NOT_AVAILABLE),
    }
)
"""The same request may succeed in a moment."""
_ANSWER_SECONDS_MAX: Final = 30.0


class Inside:
    """The brokers, as a client without a socket."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def broker(self) -> Broker:
        """The brokers now: a snapshot that is restored makes them anew."""
        return self._node.broker

    def serves(self, api: ApiKey) -> bool:
        return api in self.broker.versions

    def version(self, api: ApiKey) -> int:
        """The newest version that is served."""
        return self.broker.versions[api][1]

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that run."""
        return [node_id for node_id, each in self.broker.cluster.brokers.items() if not each.is_fenced]

    async def ask(
        self,
        api: ApiKey,
        request: Any,
        *,
        node_id: int | None = None,
        version: int | None = None,
        client_id: str = CLIENT_ID,
    ) -> Any:
        """
        The answer of one broker, the first one by default.

        Raises:
            Problem: the broker does not serve the API, or does not answer.
        """
        apis = self.broker.apis[self.broker.cluster.node_id if node_id is None else node_id]
        handler = apis.open_handlers.get(api)
        if handler is None:
            raise Problem(501, "not-served", f"the release that the broker is like does not serve {api.api_name}")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def reply(response: Any) -> None:
            if not answer.done():
                answer.set_result(response)

        context = FixedContext(self.version(api) if version is None else version, client_id, "/127.0.0.1")
        response = handler(request, context, reply)
        if isinstance(response, Generator):
            take_all(response, reply)
        elif response is not None:
            reply(response)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS_MAX):
                return await answer
        except TimeoutError:
            raise Problem(504, "no-answer", f"the broker has not answered {api.api_name}") from None
