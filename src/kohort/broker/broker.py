"""
The brokers of one process, and their handlers by API.

`SharedParts` has topics, partitions, transactions and configurations. `BrokerApis.handlers` is the registry of one broker's
handlers. The server adds those of the coordinators, and ApiVersions lists them all. What the handlers need to know of their
broker comes in with two views: the cluster seen from it, and the partitions that it leads or has replicas of. State that
belongs to one broker is in its handlers: its fetch sessions.
"""

from __future__ import annotations

from functools import cached_property

from kohort.broker.apis.broker_apis import BrokerApis, Handlers
from kohort.broker.ports import Handler
from kohort.broker.shared_parts import SharedParts
from kohort.machine.shard import Reply
from kohort.model.fixed_context import FixedContext
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey


class Broker(SharedParts):
    """
    The brokers of one process. Not thread-safe: call from the event-loop thread.

    See `SharedParts` for the arguments.
    """

    @cached_property
    def apis(self) -> dict[int, BrokerApis]:
        """The APIs of each broker, by its id."""
        return {node_id: BrokerApis(self, self.cluster.seen_from(node_id)) for node_id in self.cluster.nodes}

    @property
    def handlers(self) -> Handlers:
        """The handlers of the first broker."""
        return self.apis[self.cluster.node_id].handlers

    def produce(self, node_id: int, request: m.ProduceRequest, reply: Reply[m.ProduceResponse], /) -> None:
        """Have a broker append records without the rights of any user."""
        from kohort.broker.shares.dead_letters import PRODUCE_VERSION

        response = self.apis[node_id].produce.produce(request, FixedContext(PRODUCE_VERSION), reply)
        if isinstance(response, m.ProduceResponse):
            reply(response)

    def serve(self, api_key: ApiKey, handler: Handler) -> None:
        """Register a handler at the first broker."""
        self.apis[self.cluster.node_id].serve(api_key, handler)
