"""Topics and their records as JSON values, for tests without a client."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from time import time
from typing import Any, Final, NamedTuple

import msgspec

from kohort.control.cluster.inside import Inside
from kohort.control.web.problems import Problem, invalid, not_found
from kohort.model.errors import CorruptError, ErrorCode, UnknownRecordTypeError
from kohort.model.ids import INTERNAL_TOPICS, uuid_text
from kohort.model.limits import CONTROL_ELEMENTS_MAX
from kohort.records.json_form import json_record
from kohort.records.serde import CoordinatorRecordSerde
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, check_crc, iter_batches, read_records

READ_MAX: Final = 10_000
"""Records of one answer."""
READ_BYTES: Final = 8 * 1024 * 1024


class NewTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    What `POST /topics` takes.

    Attributes:
        partitions, replication_factor: the broker's defaults without them.
        configs: by Kafka's names.
        scope: the test to which the topic belongs; it is deleted with the scope.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: dict[str, str] = {}
    scope: str = ""


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """
    A partition as it is now. The leader is -1 while there is none; offsets are null then.

    Attributes:
        start_offset, end_offset: of the log; `end_offset` is the high watermark.
    """

    partition: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    start_offset: int | None
    end_offset: int | None


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic as it is now."""

    name: str
    topic_id: str
    scope: str
    partitions: Sequence[PartitionView]


class JsonHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A header of a record; `value_base64` for bytes that are no text."""

    key: str
    value: str | None = None
    value_base64: str | None = None


class JsonRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """
    A record. Keys and values are texts, or base64 if they are no text.

    Attributes:
        partition: 0 by default.
        timestamp_ms: now by default.
        offset: of a record that was read.
        decoded: of a record of an internal topic that was read: `record_type`, `key` and `value` as Kafka's tools print them.
    """

    key: str | None = None
    key_base64: str | None = None
    value: str | None = None
    value_base64: str | None = None
    headers: Sequence[JsonHeader] = ()
    partition: int = 0
    timestamp_ms: int | None = None
    offset: int | None = None
    decoded: dict[str, Any] | None = None


class NewRecords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /topics/{name}/records`."""

    records: Sequence[JsonRecord]


class WrittenRecord(msgspec.Struct, frozen=True):
    """The place of a written record."""

    partition: int
    offset: int


class WrittenRecords(msgspec.Struct, frozen=True):
    """The places of written records, in their order."""

    records: Sequence[WrittenRecord]


class ReadRecords(msgspec.Struct, frozen=True):
    """Records of a partition; `next_offset` is where a later call goes on."""

    records: Sequence[JsonRecord]
    next_offset: int


class Topics:
    """
    Attributes:
        scopes: the scopes of topics that were created here, by their names.
    """

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self.scopes: dict[str, str] = {}

    def view(self, name: str) -> TopicView:
        """
        Raises:
            Problem: there is no such topic.
        """
        broker = self._inside.broker
        topic = broker.catalog.topic(name)
        if topic is None:
            raise not_found("topic", name)
        partitions = []
        for index in range(topic.partition_count):
            led = broker.partitions.leader(topic, index)
            log = None
            if not led.is_offline and (found := broker.partitions.find_led(name, index)) is not None:
                log = found.log
            partitions.append(
                PartitionView(
                    partition=index,
                    leader=led.leader_id,
                    leader_epoch=led.leader_epoch,
                    replicas=list(led.replicas),
                    isr=list(led.isr),
                    start_offset=None if log is None else int(log.log_start_offset),
                    end_offset=None if log is None else int(log.high_watermark),
                )
            )
        return TopicView(
            name=name, topic_id=uuid_text(topic.topic_id), scope=self.scopes.get(name, ""), partitions=partitions
        )

    def names(self) -> list[str]:
        return sorted(topic.name for topic in self._inside.broker.catalog.topics())

    async def create(self, new: NewTopic) -> TopicView:
        """
        Raises:
            Problem: the broker refuses.
        """
        topic = m.CreateTopicsRequestCreatableTopic(
            name=new.name,
            num_partitions=-1 if new.partitions is None else new.partitions,
            replication_factor=-1 if new.replication_factor is None else new.replication_factor,
            configs=[
                m.CreateTopicsRequestCreatableTopicConfig(name=name, value=value) for name, value in new.configs.items()
            ],
        )
        answer = await self._inside.ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        _check(answer.topics[0])
        if new.scope:
            self.scopes[new.name] = new.scope
        return self.view(new.name)

    async def delete(self, name: str) -> None:
        """Delete a topic; one that is not there is no error."""
        self.scopes.pop(name, None)
        request = m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequestDeleteTopicState(name=name)], topic_names=[name], timeout_ms=30_000
        )
        answer = await self._inside.ask(ApiKey.DELETE_TOPICS, request)
        if answer.responses[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            _check(answer.responses[0])

    async def write(self, name: str, new: NewRecords) -> WrittenRecords:
        """
        Raises:
            Problem: the broker refuses.
        """
        count = len(new.records)
        if (
            count > CONTROL_ELEMENTS_MAX
            or count + sum([len(each.headers) for each in new.records]) > CONTROL_ELEMENTS_MAX
        ):
            raise invalid(f"a request has at most {CONTROL_ELEMENTS_MAX} records and headers")
        now_ms = round(time() * 1_000)
        by_partition: dict[int, list[JsonRecord]] = {}
        for record in new.records:
            by_partition.setdefault(record.partition, []).append(record)
        written: dict[int, int] = {}
        for index, records in by_partition.items():
            batch = build_batch([_encoded(each) for each in records], timestamp_ms=now_ms)
            data = m.ProduceRequestTopicProduceData(
                name=name, partition_data=[m.ProduceRequestPartitionProduceData(index=index, records=batch)]
            )
            request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
            answer = await self._inside.ask(
                ApiKey.PRODUCE, request, node_id=self._leader(name, index), version=_BY_NAME_PRODUCE
            )
            (partition,) = answer.responses[0].partition_responses
            _check(partition)
            written[index] = partition.base_offset
        places = []
        for record in new.records:
            places.append(WrittenRecord(record.partition, written[record.partition]))
            written[record.partition] += 1
        return WrittenRecords(places)

    def _leader(self, name: str, index: int) -> int:
        broker = self._inside.broker
        topic = broker.catalog.topic(name)
        if topic is None or not 0 <= index < topic.partition_count:
            raise not_found("partition", f"{name}-{index}")
        led = broker.partitions.leader(topic, index)
        if led.is_offline:
            raise Problem(503, "not-ready", f"{name}-{index} has no leader")
        return led.leader_id

    async def read(self, name: str, partition: int, offset: int, limit: int, *, is_committed: bool) -> ReadRecords:
        """
        Records from an offset on; -1 for the start of the log.

        Raises:
            Problem: the broker refuses.
        """
        if not 0 <= limit <= READ_MAX:
            raise invalid(f"limit must be from 0 to {READ_MAX}; it is {limit}")
        node_id = self._leader(name, partition)
        if offset < 0:
            offset = self.view(name).partitions[partition].start_offset or 0
        records: list[JsonRecord] = []
        while len(records) < limit:
            batches = await self._fetched(node_id, name, partition, offset, is_committed=is_committed)
            if not batches:
                break
            for record_batch in batches:
                first, offset = offset, record_batch.next_offset
                for record in record_batch.records:
                    if record.offset >= first and len(records) < limit:
                        records.append(_shown(name, partition, record))
                        offset = record.offset + 1 if len(records) == limit else offset
                if len(records) == limit:
                    break
        return ReadRecords(records, offset)

    async def _fetched(
        self, node_id: int, name: str, partition: int, offset: int, *, is_committed: bool
    ) -> list[_Batch]:
        wanted = m.FetchRequestFetchPartition(
            partition=partition, current_leader_epoch=-1, fetch_offset=offset, partition_max_bytes=READ_BYTES
        )
        request = m.FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=READ_BYTES,
            isolation_level=int(is_committed),
            session_id=0,
            session_epoch=-1,
            topics=[m.FetchRequestFetchTopic(topic=name, partitions=[wanted])],
        )
        answer = await self._inside.ask(ApiKey.FETCH, request, node_id=node_id, version=_BY_NAME_FETCH)
        (found,) = answer.responses[0].partitions
        _check(found)
        data = b"".join(found.records) if isinstance(found.records, (list, tuple)) else bytes(found.records or b"")
        begun = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        aborted: set[int] = set()
        batches = []
        for position, header in iter_batches(data):
            piece = memoryview(data)[position : position + header.size_bytes]
            if len(piece) < header.size_bytes:
                break
            if not check_crc(data, position):
                raise Problem(500, "corrupt", f"the batch at offset {header.base_offset} has a wrong checksum")
            while begun and begun[0][0] <= header.base_offset:
                aborted.add(begun.pop(0)[1])
            is_aborted = header.is_transactional and header.producer_id in aborted
            if header.is_control:
                aborted.discard(header.producer_id)
            records = () if header.is_control or is_aborted else read_records(piece)
            batches.append(_Batch(header.next_offset, records))
        return batches


_BY_NAME_PRODUCE: Final = 12
_BY_NAME_FETCH: Final = 12
"""The newest versions with the names of topics."""


class _Batch(NamedTuple):
    """The records of a batch that a consumer gets."""

    next_offset: int
    records: Sequence[Any]


def _check(answered: Any) -> None:
    if answered.error_code:
        code = ErrorCode(answered.error_code)
        text = getattr(answered, "error_message", None)
        raise Problem(422, "refused", f"the broker answers {code.name}{f': {text}' if text else ''}", error=code.name)


def _encoded(record: JsonRecord) -> BatchRecord:
    headers = [(each.key, _bytes(each.value, each.value_base64, "header")) for each in record.headers]
    key = _bytes(record.key, record.key_base64, "key")
    return BatchRecord(key, _bytes(record.value, record.value_base64, "value"), headers, record.timestamp_ms)


def _bytes(text: str | None, base64: str | None, what: str) -> bytes | None:
    if base64 is None:
        return None if text is None else text.encode()
    if text is not None:
        raise invalid(f"a {what} is a text or base64, not both")
    try:
        return b64decode(base64, validate=True)
    except ValueError:
        raise invalid(f"the {what} is no base64") from None


def _decoded(topic: str, record: Any) -> dict[str, Any] | None:
    """A coordinator record in the form of Kafka's formatters; None for any other, and for one that is unknown or damaged."""
    if topic not in INTERNAL_TOPICS or record.key is None:
        return None
    try:
        record_type = CoordinatorRecordSerde(topic).type_of(bytes(record.key))
        return {"record_type": record_type.name, **json_record(record_type, record.key, record.value)}
    except (CorruptError, UnknownRecordTypeError):
        return None


def _shown(topic: str, partition: int, record: Any) -> JsonRecord:
    key, key_base64 = _text(record.key)
    value, value_base64 = _text(record.value)
    headers = [JsonHeader(name, *_text(content)) for name, content in record.headers]
    return JsonRecord(
        key=key,
        key_base64=key_base64,
        value=value,
        value_base64=value_base64,
        headers=headers,
        partition=partition,
        timestamp_ms=record.timestamp,
        offset=record.offset,
        decoded=_decoded(topic, record),
    )


def _text(content: bytes | None) -> tuple[str | None, str | None]:
    if content is None:
        return None, None
    try:
        return bytes(content).decode(), None
    except UnicodeDecodeError:
        return None, b64encode(content).decode()
