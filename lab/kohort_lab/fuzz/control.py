"""A well-behaved client beside the attackers: its records and offsets stay, and every answer comes."""

import time
from typing import Any, Final

from kohort.client.addresses import Address
from kohort.client.connection import ANY, Connection, Versions
from kohort.model.errors import ConfigError, ErrorCode, KohortError
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records

TOPIC: Final = "control"
GROUP: Final = "control"
TIMEOUT_S: Final = 60.0
"""No answer within this time is a failure."""
STEP_WAIT_S: Final = 0.05
_FETCH_BYTES: Final = 1 << 20
_BY_NAME: Final = Versions(0, 12)


class ControlError(AssertionError):
    """The control client got a wrong answer, or none."""


class Control:
    """
    Produces to a topic of its own, reads all of it again, commits offsets and fetches them.

    Attributes:
        latencies_s: the duration of every request.
        produced: the number of records acknowledged.
    """

    def __init__(self, address: Address) -> None:
        self.latencies_s: list[float] = []
        self.produced = 0
        self._address = address
        self._committed = -1
        self._connection = Connection(address, TIMEOUT_S, client_id="control")

    def close(self) -> None:
        self._connection.close()

    def reconnect(self) -> None:
        """
        Connect again, after a restart of the broker, and wait for the coordinator of the group.

        Raises:
            ControlError: there is none.
        """
        self.close()
        self._connection = Connection(self._address, TIMEOUT_S, client_id="control")
        self._wait_for_coordinator()

    def prepare(self) -> None:
        """
        Create the topic, and wait for the coordinator of the group.

        Raises:
            ControlError: a wrong answer, or none.
        """
        topic = m.CreateTopicsRequestCreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        created = self._ask(ApiKey.CREATE_TOPICS, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        _check("CreateTopics", created.topics[0].error_code, 0)
        self._wait_for_coordinator()

    def step(self) -> None:
        """
        Produce a record, commit its offset, fetch both.

        Raises:
            ControlError: a wrong answer, or none.
        """
        number = self.produced
        batch = build_batch([BatchRecord(b"%d" % number, b"value of %d" % number)], timestamp_ms=_now_ms())
        data = m.ProduceRequestPartitionProduceData(index=0, records=batch)
        topic = m.ProduceRequestTopicProduceData(name=TOPIC, partition_data=[data])
        request = m.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
        answer = self._ask(ApiKey.PRODUCE, request, within=_BY_NAME).responses[0].partition_responses[0]
        _check("Produce", (answer.error_code, answer.base_offset), (0, number))
        self.produced += 1
        _check("OffsetCommit", self._commit(number), 0)
        self._read(number)
        self._check_committed()

    def check_all(self) -> None:
        """
        Fetch everything again, from the first record on.

        Raises:
            ControlError: a record or the committed offset is missing or another.
        """
        self._read(0)
        self._check_committed()

    def _wait_for_coordinator(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while code := self._fetch_committed().error_code:
            if time.monotonic() > deadline:
                raise ControlError(f"the group has no coordinator: error code {code}")
            self._ask(ApiKey.FIND_COORDINATOR, m.FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]))
            time.sleep(STEP_WAIT_S)

    def _read(self, start: int) -> None:
        """A partition is loaded with its first request; on a busy machine the first answers are KAFKA_STORAGE_ERROR."""
        deadline = time.monotonic() + TIMEOUT_S
        while start < self.produced:
            wanted = m.FetchRequestFetchPartition(partition=0, fetch_offset=start, partition_max_bytes=_FETCH_BYTES)
            topic = m.FetchRequestFetchTopic(topic=TOPIC, partitions=[wanted])
            request = m.FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=_FETCH_BYTES, topics=[topic])
            found = self._ask(ApiKey.FETCH, request, within=_BY_NAME).responses[0].partitions[0]
            if found.error_code == ErrorCode.KAFKA_STORAGE_ERROR and time.monotonic() < deadline:
                time.sleep(STEP_WAIT_S)
                continue
            _check("Fetch", (found.error_code, found.high_watermark), (0, self.produced))
            data = bytes(found.records or b"")
            records = [record for position, _ in iter_batches(data) for record in read_records(data[position:])]
            records = [record for record in records if record.offset >= start]
            expected = [(start + place, b"value of %d" % (start + place)) for place in range(len(records))]
            _check("Fetch", [(record.offset, record.value) for record in records], expected)
            if not records:
                raise ControlError(f"there is no record at offset {start}")
            start += len(records)

    def _commit(self, offset: int) -> int:
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = m.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        request = m.OffsetCommitRequest(group_id=GROUP, generation_id_or_member_epoch=-1, topics=[topic])
        answer = self._ask(ApiKey.OFFSET_COMMIT, request, within=Versions(0, 9))
        code: int = answer.topics[0].partitions[0].error_code
        if not code:
            self._committed = offset
        return code

    def _check_committed(self) -> None:
        answer = self._fetch_committed()
        found = answer.topics[0].partitions[0]
        _check("OffsetFetch", (answer.error_code, found.error_code, found.committed_offset), (0, 0, self._committed))

    def _fetch_committed(self) -> Any:
        topic = m.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
        request = m.OffsetFetchRequest(groups=[m.OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])])
        return self._ask(ApiKey.OFFSET_FETCH, request, within=Versions(8, 9)).groups[0]

    def _ask(self, api_key: ApiKey, request: Any, within: Versions = ANY) -> Any:
        start = time.monotonic()
        try:
            return self._connection.send(api_key, request, within=within)
        except (ConfigError, KohortError, OSError) as error:
            raise ControlError(f"{api_key.api_name} is not answered: {error}") from error
        finally:
            self.latencies_s.append(time.monotonic() - start)


def _check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise ControlError(f"{what}: {found} instead of {expected}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
