"""
The largest requests that a broker takes, of every API: one array of the newest version has as many elements as are allowed.

Elements are all equal, or all different. Some requests over existing partitions follow. `make largest-requests` measures them.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

from kohort.broker.apis.api_table import API_TABLE, served_versions
from kohort.wire import messages as m
from kohort.wire.apis import DEFAULT_RELEASE, ApiKey
from kohort.wire.compression import Codec, compress
from kohort.wire.encoders import request_encoder
from kohort.wire.message_classes import message_classes
from kohort.wire.schema import Field
from kohort.wire.schema import message as schema_of
from tests.broker.telemetry import otlp_messages
from tests.broker.telemetry.otlp_messages import gauge, message
from tests.server.clients import Client

SLACK = 50
"""Elements of the other arrays."""


def newest_version(api: ApiKey) -> int:
    """The newest version of an API that a broker serves by default."""
    return served_versions(DEFAULT_RELEASE)[api][1]


@dataclass(frozen=True)
class Largest:
    """A request: which array is filled, with equal or different elements."""

    api: ApiKey
    array: tuple[str, ...]
    is_distinct: bool
    elements: int

    def __str__(self) -> str:
        return f"{self.api.api_name} {'.'.join(self.array)} {'different' if self.is_distinct else 'equal'}"

    def frame(self) -> bytes:
        version = newest_version(self.api)
        return request_encoder(self.api, version)(1, "test", Filler(self, version).message())


class Filler:
    """Makes the message of a request."""

    def __init__(self, largest: Largest, version: int) -> None:
        self.largest = largest
        self.version = version
        self.schema = schema_of(f"{largest.api.api_name}Request")
        self.classes = message_classes(self.schema.name)
        self.numbers = count(1)

    def message(self) -> Any:
        return self.struct(self.schema.name, self.largest.array)

    def struct(self, name: str, array: tuple[str, ...]) -> Any:
        values = {
            field.name: self.value(field, array)
            for field in self.schema.fields(name, self.version)
            if field.tag is None or (array and field.name == array[0])
        }
        return self.classes[name](**values)

    def value(self, field: Field, array: tuple[str, ...]) -> Any:
        is_filled = bool(array) and field.name == array[0]
        if field.array:
            number = (self.largest.elements if len(array) == 1 else 1) if is_filled else 0
            return [self.element(field, array[1:] if is_filled else ()) for _ in range(number)]
        return self.element(field, array[1:] if is_filled else ())

    def element(self, field: Field, array: tuple[str, ...]) -> Any:
        number = next(self.numbers) if self.largest.is_distinct else 1
        if field.type in self.schema.structs:
            return self.struct(field.type, array)
        match field.type:
            case "string":
                return self.text(field.name, number)
            case "bool":
                return True
            case "uuid":
                return None if self.largest.api is ApiKey.DELETE_TOPICS else UUID(int=number)
            case "bytes" | "records":
                return b""
            case "int8" | "int16" | "uint16":
                return {"resource_type": 2}.get(field.name, 1)
            case "float64":
                return 1.0
            case _:
                return {"timeout_ms": 1000, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 20}.get(
                    field.name, number - 1
                )

    def text(self, name: str, number: int) -> str:
        if self.largest.is_distinct:
            return f"t{number:x}"
        return "t" if "member" not in name else "m"


def arrays(api: ApiKey) -> Iterator[tuple[str, ...]]:
    """The paths of all arrays in the newest served version of a request."""
    schema, version = schema_of(f"{api.api_name}Request"), newest_version(api)

    def within(struct: str) -> Iterator[tuple[str, ...]]:
        for field in schema.fields(struct, version):
            if field.array:
                yield (field.name,)
            if field.type in schema.structs:
                for path in within(field.type):
                    yield (field.name, *path)

    return within(schema.name)


@dataclass(frozen=True)
class StoredRequest:
    """A request that meets states which other requests have left."""

    name: str
    data: bytes

    def __str__(self) -> str:
        return self.name

    def frame(self) -> bytes:
        return self.data


def largest_requests(api: ApiKey, elements: int | None = None) -> list[Largest]:
    most = API_TABLE[api].cost.elements
    size = min(most, most if elements is None else elements) - SLACK
    return [Largest(api, path, is_distinct, size) for path in arrays(api) for is_distinct in (False, True)]


async def stored_requests(api: ApiKey, address: tuple[str, int]) -> AsyncIterator[StoredRequest]:
    """The largest requests of some APIs over partitions that exist, or with contents that are not an array."""
    if api not in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.PUSH_TELEMETRY):
        return
    client = Client(*await asyncio.open_connection(*address))
    if api is ApiKey.PUSH_TELEMETRY:
        configs = [
            m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=0, value=value)
            for key, value in (("metrics", "*"), ("interval.ms", "100"))
        ]
        resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=16, resource_name="all", configs=configs
        )
        await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, m.IncrementalAlterConfigsRequest(resources=[resource]))
        for codec in Codec.NONE, Codec.ZSTD:
            got = await client.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, m.GetTelemetrySubscriptionsRequest())
            yield StoredRequest(f"{api.api_name} {codec.name}", _push(got, codec, _metrics(codec)))
        got = await client.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, m.GetTelemetrySubscriptionsRequest())
        yield StoredRequest(
            f"{api.api_name} of empty fields", _push(got, Codec.ZSTD, otlp_messages.field(15, 0) * ((2 << 20) - 8))
        )
        client.writer.close()
        return
    topics = [
        m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=9_900, replication_factor=1) for name in "uv"
    ]
    for topic in topics:
        made = await client.ask(ApiKey.CREATE_TOPICS, 5, m.CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
        assert not made.topics[0].error_code, made
    if api is not ApiKey.ADD_PARTITIONS_TO_TXN:
        find = m.FindCoordinatorRequest(coordinator_keys=["g"])
        while (await client.ask(ApiKey.FIND_COORDINATOR, 4, find)).coordinators[0].error_code:
            pass
    if api is ApiKey.OFFSET_COMMIT:
        # A batch holds no more records: those of all 20 000 are refused.
        for count, name in (18_000, "new"), (18_000, "existing offsets"), (19_800, "too many"):
            yield StoredRequest(f"{api.api_name} {count:,} partitions, {name}", _commit(count))
        client.writer.close()
        return
    find = m.FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
    while (await client.ask(ApiKey.FIND_COORDINATOR, 4, find)).coordinators[0].error_code:
        pass
    begin = m.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    started = await client.ask(ApiKey.INIT_PRODUCER_ID, 4, begin)
    assert not started.error_code, started
    if api is ApiKey.ADD_PARTITIONS_TO_TXN:
        partitions = m.AddPartitionsToTxnTopic
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=started.producer_id,
            v3_and_below_producer_epoch=started.producer_epoch,
            v3_and_below_topics=[partitions(name=name, partitions=range(9_900)) for name in "uv"],
        )
        yield StoredRequest(f"{api.api_name} 19,800 partitions that exist", request_encoder(api, 3)(1, "test", request))
    else:
        for name in "new", "pending offsets":
            yield StoredRequest(f"{api.api_name} 18,000 partitions, {name}", _txn_commit(started, 18_000))
    end = m.EndTxnRequest(
        transactional_id="t", producer_id=started.producer_id, producer_epoch=started.producer_epoch, committed=True
    )
    yield StoredRequest("EndTxn of these partitions", request_encoder(ApiKey.END_TXN, 5)(1, "test", end))
    client.writer.close()


def _commit(count: int) -> bytes:
    partition = m.OffsetCommitRequestPartition
    topics = [
        m.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                partition(partition_index=index, committed_offset=1, committed_metadata="")
                for index in range(count // 2)
            ],
        )
        for name in "uv"
    ]
    request = m.OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=topics)
    return request_encoder(ApiKey.OFFSET_COMMIT, 9)(1, "test", request)


def _txn_commit(producer: m.InitProducerIdResponse, count: int) -> bytes:
    partition = m.TxnOffsetCommitRequestPartition
    topics = [
        m.TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                partition(partition_index=index, committed_offset=1, committed_metadata="")
                for index in range(count // 2)
            ],
        )
        for name in "uv"
    ]
    request = m.TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=topics,
    )
    return request_encoder(ApiKey.TXN_OFFSET_COMMIT, 5)(1, "test", request)


def _metrics(codec: Codec) -> bytes:
    """Metrics of a megabyte, or of four megabytes before compression."""
    size, texts = (1 << 20, 4) if codec is Codec.NONE else (4 << 20, 12)
    labels = {f"label{number}": "x" * 100 for number in range(texts)}
    one = gauge("metric", 1.0, **labels)
    return message([one] * (size // (len(one) + 4) - 1))


def _push(got: m.GetTelemetrySubscriptionsResponse, codec: Codec, metrics: bytes) -> bytes:
    request = m.PushTelemetryRequest(
        client_instance_id=got.client_instance_id,
        subscription_id=got.subscription_id,
        compression_type=codec,
        metrics=metrics if codec is Codec.NONE else compress(metrics, codec),
    )
    return request_encoder(ApiKey.PUSH_TELEMETRY, 0)(1, "test", request)
