"""
Worst requests that a schema does not tell: contents that are compressed or parsed, and requests that meet states which other
requests have left. `BY_HAND` has them by API.
"""

import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any

from kohort.broker.configs.definitions import BROKER_KEYS, UpdateMode
from kohort.broker.configs.values import ConfigType
from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batch_header import HEADER_BYTES
from kohort.wire.batches import BatchRecord, build_batch
from kohort.wire.compression import Codec, compress
from kohort.wire.encoders import request_encoder
from kohort.wire.primitives import write_uvarint
from tests.broker.telemetry.otlp_messages import attribute, field, gauge, message
from tests.server.clients import Client
from tests.server.requests.largest_requests import StoredRequest
from tests.wire.hostile_batches import batch_of, equal_records, rising_records

TOPIC_TYPE, BROKER_TYPE, METRICS_TYPE = 2, 4, 16
SET, APPEND = 0, 2
ENTITIES = 2_000
RECORDS = 20_000
FIELDS = 300_000
PARTS = 15_000
PACKED_PARTITIONS = 30
SALT_BYTES = 40 << 20
SESSION_PARTITIONS = 19_000


def stored(name: str, api: ApiKey, version: int, request: Any) -> StoredRequest:
    return StoredRequest(f"{api.api_name}: {name}", request_encoder(api, version)(1, "test", request))


def stretched(frame: bytes, string: bytes, size: int) -> bytes:
    """The frame of a request whose one long compact string is repeated until it has a size, which no encoder writes."""
    plain, longer = bytearray(), bytearray()
    write_uvarint(plain, len(string) + 1)
    write_uvarint(longer, size + 1)
    assert frame.count(plain + string) == 1
    body = frame[4:].replace(plain + string, longer + (string * (size // len(string) + 1))[:size])
    return len(body).to_bytes(4, "big") + body


# Configurations


def configs(kind: int, name: str, values: Sequence[tuple[str, int, str]]) -> m.IncrementalAlterConfigsRequest:
    changes = [
        m.IncrementalAlterConfigsRequestAlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in values
    ]
    resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
        resource_type=kind, resource_name=name, configs=changes
    )
    return m.IncrementalAlterConfigsRequest(resources=[resource])


def replicas(first: int, size: int = STRING_BYTES_MAX) -> str:
    """A list of different elements."""
    elements: list[str] = []
    left = size
    while left > 0:
        elements.append(f"0:{first + len(elements)}")
        left -= len(elements[-1]) + 1
    return ",".join(elements[:-1])


BROKER_LISTS = [
    name
    for name, key in BROKER_KEYS.items()
    if key.type is ConfigType.LIST and key.update_mode is not UpdateMode.READ_ONLY
]
LISTS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


async def alter_configs(client: Client) -> AsyncIterator[StoredRequest]:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    for key, value in ((LISTS[0], replicas(0)), ("cleanup.policy", "delete," * 4_000 + "delete")):
        yield stored(f"a long {key}", api, 1, configs(TOPIC_TYPE, "t", [(key, SET, value)]))
    # A string of the protocol has 32 767 bytes: this one closes the connection.
    value = "0:0," * (STRING_BYTES_MAX // 4)
    long = stored("", api, 1, configs(TOPIC_TYPE, "t", [(LISTS[0], SET, value)])).data
    yield StoredRequest("IncrementalAlterConfigs: a list of 2 MB", stretched(long, value.encode(), 2 << 20))
    for operation in SET, APPEND:
        for contents in ",", "0:0,":
            lists = [(key, operation, contents * (STRING_BYTES_MAX // len(contents))) for key in LISTS]
            yield stored(f"{contents} in lists, {operation}", api, 1, configs(TOPIC_TYPE, "t", lists))
    for operation in SET, APPEND:
        lists = [(key, operation, "," * STRING_BYTES_MAX) for key in BROKER_LISTS]
        yield stored(f"all lists of a broker, {operation}", api, 1, configs(BROKER_TYPE, "", lists))
    await client.ask(api, 1, configs(TOPIC_TYPE, "t", [(key, SET, replicas(0, 16_000)) for key in LISTS]))
    yield stored(
        "a list beside a list",
        api,
        1,
        configs(TOPIC_TYPE, "t", [(key, APPEND, replicas(10_000, 16_000)) for key in LISTS]),
    )


# Quotas and credentials


def quotas(users: list[str], rate: float) -> m.AlterClientQuotasRequest:
    change = [m.AlterClientQuotasRequestOpData(key="producer_byte_rate", value=rate, remove=False)]
    entries = [
        m.AlterClientQuotasRequestEntryData(
            entity=[m.AlterClientQuotasRequestEntityData(entity_type="user", entity_name=user)], ops=change
        )
        for user in users
    ]
    return m.AlterClientQuotasRequest(entries=entries)


async def alter_quotas(client: Client) -> AsyncIterator[StoredRequest]:
    api = ApiKey.ALTER_CLIENT_QUOTAS
    answer = await client.ask(api, 1, quotas([f"u{number}" for number in range(ENTITIES)], 1e6))
    assert {entry.error_code for entry in answer.entries} == {0}
    yield stored(f"one entity beside {ENTITIES}", api, 1, quotas(["u1"], 2e6))
    yield stored(f"many beside {ENTITIES}", api, 1, quotas([f"v{number}" for number in range(ENTITIES)], 2e6))


async def alter_credentials(_client: Client) -> AsyncIterator[StoredRequest]:
    credential = m.AlterUserScramCredentialsRequestScramCredentialUpsertion(
        name="u", mechanism=1, iterations=4_096, salt=bytes(SALT_BYTES), salted_password=bytes(32)
    )
    request = m.AlterUserScramCredentialsRequest(upsertions=[credential])
    yield stored("a long salt", ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)


# Client metrics


async def push(client: Client) -> AsyncIterator[StoredRequest]:
    api = ApiKey.PUSH_TELEMETRY
    subscription = [("metrics", SET, "*"), ("interval.ms", SET, "100")]
    await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, configs(METRICS_TYPE, "all", subscription))
    labels = {f"label{number}": "x" * 100 for number in range(4)}
    contents = {
        "many points": message([gauge("metric", 1.0, **labels)] * 1_800),
        "empty fields": bytes((0x7A, 0)) * FIELDS,
        "empty resources": field(1, b"") * FIELDS,
        "a long label": message([gauge("metric", 1.0, label="x" * (4_000_000))]),
        "many labels": message([field(1, "metric") + field(5, field(1, field(7, attribute("k", "v")) * FIELDS))]),
    }
    packed = [(name, Codec.ZSTD, compress(data, Codec.ZSTD)) for name, data in contents.items()]
    for name, codec, data in (*packed, *parts()):
        got = await client.ask(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, m.GetTelemetrySubscriptionsRequest())
        request = m.PushTelemetryRequest(
            client_instance_id=got.client_instance_id,
            subscription_id=got.subscription_id,
            compression_type=codec,
            metrics=data,
        )
        yield stored(name, api, 0, request)


# Records


def produced(batch: bytes) -> m.ProduceRequest:
    partition = m.ProduceRequestPartitionProduceData(index=0, records=batch)
    topic = m.ProduceRequestTopicProduceData(name="t", partition_data=[partition])
    return m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])


def batches() -> Iterator[tuple[str, bytes]]:
    for codec in Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD:
        yield f"records in {codec.name}", batch_of(compress(rising_records(RECORDS), codec), codec, RECORDS)
    yield "equal records", batch_of(compress(equal_records(RECORDS), Codec.ZSTD), Codec.ZSTD, RECORDS)
    yield "zeros", batch_of(compress(bytes(16 << 20), Codec.ZSTD), Codec.ZSTD, 1)
    for name, codec, packed in parts():
        yield name, batch_of(packed, codec, 1)


def parts() -> Iterator[tuple[str, Codec, bytes]]:
    """Compressed data of many small parts, most of which are empty."""
    yield "members of gzip", Codec.GZIP, compress(b"", Codec.GZIP) * PARTS
    header = compress(b"", Codec.SNAPPY)
    yield "blocks of snappy", Codec.SNAPPY, header + struct.pack(">ib", 1, 0) * PARTS
    yield "headers of snappy", Codec.SNAPPY, header * PARTS
    blocks = struct.pack("<IB", 1 << 31 | 1, 0) * PARTS
    yield "blocks of LZ4", Codec.LZ4, b"\x04\x22\x4d\x18\x60\x40\x82" + blocks + bytes(4)


async def produce(_client: Client) -> AsyncIterator[StoredRequest]:
    for name, batch in batches():
        yield stored(name, ApiKey.PRODUCE, 9, produced(batch))


async def list_offsets(client: Client) -> AsyncIterator[StoredRequest]:
    """A search by time decompresses a batch of each partition."""
    made = m.CreateTopicsRequestCreatableTopic(name="packed", num_partitions=PACKED_PARTITIONS, replication_factor=1)
    await client.ask(ApiKey.CREATE_TOPICS, 7, m.CreateTopicsRequest(topics=[made], timeout_ms=5_000))
    record = build_batch([BatchRecord(None, bytes(900_000))], timestamp_ms=1000)[HEADER_BYTES:]
    batch = batch_of(compress(record, Codec.ZSTD), Codec.ZSTD, 1)
    partitions = [
        m.ProduceRequestPartitionProduceData(index=number, records=batch) for number in range(PACKED_PARTITIONS)
    ]
    topic = m.ProduceRequestTopicProduceData(name="packed", partition_data=partitions)
    request = m.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic])
    answer = await client.ask(ApiKey.PRODUCE, 9, request)
    assert {each.error_code for each in answer.responses[0].partition_responses} == {0}
    wanted = [m.ListOffsetsPartition(partition_index=number, timestamp=1) for number in range(PACKED_PARTITIONS)]
    search = m.ListOffsetsRequest(topics=[m.ListOffsetsTopic(name="packed", partitions=wanted)])
    yield stored("by time in compressed batches", ApiKey.LIST_OFFSETS, 7, search)


async def fetch(client: Client) -> AsyncIterator[StoredRequest]:
    partitions = [m.FetchRequestFetchPartition(partition=number) for number in range(SESSION_PARTITIONS)]
    topic = m.FetchRequestFetchTopic(topic="t", partitions=partitions)
    full = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=0, topics=[topic])
    session = (await client.ask(ApiKey.FETCH, 12, full)).session_id
    assert session
    for epoch in 1, 2:
        # Each request is sent twice: the second one has an epoch that is over.
        request = m.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session, session_epoch=epoch)
        yield stored(f"an empty one in a session of {SESSION_PARTITIONS}", ApiKey.FETCH, 12, request)


# Groups


async def heartbeat(_client: Client) -> AsyncIterator[StoredRequest]:
    classes = r"\pL\p{Greek}\PN[\p{Lu}\p{Ll}]" * 30
    for number, expression in enumerate(
        (classes, "a{1,500}" * 100, "(" * 500 + ")" * 500, "x" * 1_000, "(a?){9}" * 140)
    ):
        request = m.ConsumerGroupHeartbeatRequest(
            group_id=f"p{number}",
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex=expression,
            topic_partitions=[],
        )
        yield stored(f"expression {number}", ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


BY_HAND: dict[ApiKey, Callable[[Client], AsyncIterator[StoredRequest]]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_quotas,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_credentials,
    ApiKey.PUSH_TELEMETRY: push,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: heartbeat,
}
