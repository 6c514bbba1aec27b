"""
The control connection to a broker under comparison: its API versions, and questions that belong to no scenario.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from kohort.model.errors import ConfigError, WireError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import iter_batches
from kohort.wire.encoders import request_encoder
from kohort_lab.conformance.brokers.connection import TargetConnection

ANSWER_TIMEOUT_S = 60.0
ALIVE_TIMEOUT_S = 20.0
LOST = (OSError, WireError, TimeoutError)
"""The errors of a request whose broker has ended."""

_FETCH_BYTES = 1 << 24


class Control:
    """
    Use `open` before anything else; it may be called again.

    Attributes:
        address: host and port.
        versions: oldest and newest version that the broker serves, by API.
    """

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)
        self.versions: dict[str, tuple[int, int]] = {}
        self._connection: TargetConnection | None = None

    async def open(self) -> None:
        """Connect and learn the versions. Raises OSError, WireError or TimeoutError if no broker answers."""
        self.close()
        self._connection = await TargetConnection.open(*self.address)
        await asyncio.wait_for(self._learn_versions(), ALIVE_TIMEOUT_S)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    async def is_alive(self) -> bool:
        """Whether the broker accepts a new connection and answers."""
        try:
            await self.open()
        except LOST:
            return False
        return True

    async def ask(self, api: ApiKey, version: int, request: Any) -> Any:
        """Send a request and return the response. Raises WireError without one, and TimeoutError."""
        assert self._connection is not None
        encode = request_encoder(api, version)
        return await self._connection.ask(
            api, version, lambda number: encode(number, "kc-control", request), ANSWER_TIMEOUT_S
        )

    async def ask_newest(self, api: ApiKey, request: Any, *, below: int | None = None) -> Any:
        """
        Send a request in the newest version that both sides know, up to `below`.

        Raises:
            ConfigError: there is no such version.
        """
        oldest, newest = self.versions.get(api.api_name, (0, -1))
        version = min(newest, api.newest_stable)
        if version < max(oldest, api.oldest):
            raise ConfigError(
                f"the broker serves no version of {api.api_name} that is known here, and every scenario needs it"
            )
        return await self.ask(api, version if below is None else min(below, version), request)

    async def list_ends(self, partitions: Mapping[str, Sequence[int]]) -> Any:
        """The response of ListOffsets for the ends of partitions, by topic name."""
        request = m.ListOffsetsRequest(
            replica_id=-1,
            topics=tuple(
                m.ListOffsetsTopic(
                    name=name,
                    partitions=tuple(
                        m.ListOffsetsPartition(partition_index=index, timestamp=-1, current_leader_epoch=-1)
                        for index in indexes
                    ),
                )
                for name, indexes in partitions.items()
            ),
        )
        return await self.ask_newest(ApiKey.LIST_OFFSETS, request, below=7)

    async def read_log(self, topic: str, index: int) -> AsyncIterator[bytes]:
        """The batches of a partition, from its beginning to its end, in parts."""
        offset = 0
        while True:
            response = await self.ask_newest(ApiKey.FETCH, _fetch_request(topic, index, offset), below=12)
            batches = bytes(response.responses[0].partitions[0].records or b"")
            after = max((header.next_offset for _, header in iter_batches(batches)), default=0)
            if not after:
                return
            yield batches
            offset = after

    async def _learn_versions(self) -> None:
        request = m.ApiVersionsRequest(client_software_name="kohort-conformance", client_software_version="1")
        response = await self.ask(ApiKey.API_VERSIONS, 3, request)
        known = {int(api): api for api in ApiKey}
        self.versions = {
            known[key.api_key].api_name: (key.min_version, key.max_version)
            for key in response.api_keys
            if key.api_key in known
        }


def _fetch_request(topic: str, index: int, offset: int) -> m.FetchRequest:
    partition = m.FetchRequestFetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES, current_leader_epoch=-1
    )
    return m.FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCH_BYTES,
        session_epoch=-1,
        topics=(m.FetchRequestFetchTopic(topic=topic, partitions=(partition,)),),
    )
