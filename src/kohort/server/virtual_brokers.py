"""The brokers of one process: each can be stopped and started again."""

import asyncio
import logging
from collections.abc import Callable, Generator, Mapping
from functools import partial

from kohort.broker.broker import Broker
from kohort.broker.cluster import RegisteredBroker
from kohort.model.errors import ConfigError, ErrorCode, UnavailableError
from kohort.server.connections.client_connections import ClientConnections
from kohort.server.listeners.broker_listeners import BrokerListeners

_log = logging.getLogger("kohort.server")


class VirtualBrokers:
    """
    Args:
        listeners: by broker.

    Attributes:
        registered: all brokers of the process by id, also those that are stopped.
    """

    def __init__(
        self,
        registered: Mapping[int, RegisteredBroker],
        broker: Broker,
        listeners: Mapping[int, BrokerListeners],
        connections: ClientConnections,
    ) -> None:
        self.registered = registered
        self._broker = broker
        self._listeners = listeners
        self._connections = connections

    async def stop(self, node_id: int) -> None:
        """
        Stop a broker: its leaders move to other in-sync replicas, then its listeners and connections close.

        Raises:
            ConfigError: there is no such broker, or it is stopped already.
            StorageError: the new leaders could not be written.
        """
        broker = self._known(node_id)
        if broker.is_fenced:
            raise ConfigError(f"broker {node_id} is stopped already")
        await _changed(partial(self._broker.replication.fence, node_id))
        await self._listeners[node_id].close()
        self._listeners[node_id].disconnect()
        self._broker.apis[node_id].on_stopped()
        _log.info("broker.stopped broker=%d", node_id)

    async def start(self, node_id: int) -> None:
        """
        Start a broker that was stopped: it joins the in-sync replicas of its partitions.

        Raises:
            ConfigError: there is no such broker, it runs already, or its address is taken.
            StorageError: the new in-sync replicas could not be written.
        """
        broker = self._known(node_id)
        if not broker.is_fenced:
            raise ConfigError(f"broker {node_id} runs already")
        listeners = self._listeners[node_id]
        listeners.bind()
        await _changed(partial(self._broker.replication.unfence, broker))
        listeners.start()
        _log.info("broker.started broker=%d", node_id)

    def abort_connections(self, node_id: int) -> None:
        """Reset the connections of a broker's clients, before their replies. Raises: ConfigError: there is no such broker."""
        self._known(node_id)
        for connection in list(self._connections.open):
            if connection.endpoint.node_id == node_id:
                connection.abort()

    def _known(self, node_id: int) -> RegisteredBroker:
        broker = self.registered.get(node_id)
        if broker is None:
            known = ", ".join(map(str, self.registered))
            raise ConfigError(f"there is no broker {node_id}; the brokers of this process are {known}")
        return broker


async def _changed(begin: Callable[[Callable[[ErrorCode], None]], Generator[None, None, None]]) -> None:
    """Take the steps of a change of leaders, and wait until it is durable."""
    done: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
    for _ in begin(done.set_result):
        await asyncio.sleep(0)
    code = await done
    if code:
        raise UnavailableError(f"the change of leaders was not written: {code.name}; see the log of the process")
