"""Writers that remember what they sent and what was acknowledged, and what a broker has to have after any crash."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kohort.client.cluster import RETRIABLE_COORDINATOR_ERRORS
from kohort.model.errors import ErrorCode
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from kohort.wire.batches import BatchRecord, build_batch, iter_batches, read_records
from tests.clients.waiting import wait_until
from tests.crash.connection import WAIT_SECONDS_MAX, Connection

TOPIC: Final = "ledger"
TOPIC_PARTITIONS: Final = 3
GROUPS: Final = tuple(f"group-{number}" for number in range(6))
FETCH_BYTES: Final = 8 * 1024 * 1024

GroupPartition: TypeAlias = tuple[str, int]

RETENTION: Final = {"log.retention.ms": "-1"}
"""Configurations of every broker here: the records have old timestamps, and retention begins 30 s after a start."""

NOT_YET: Final = RETRIABLE_COORDINATOR_ERRORS | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@dataclass
class Ledger:
    """
    What was sent, and what the broker may not forget.

    Attributes:
        commits_sent, commits_kept: the highest offset per (group, partition). A group commits rising offsets only, so what
            is there must lie between the two.
        records_sent: how many values each partition was sent; the values are "0", "1", ...
        records_kept: value by offset, per partition.
        acknowledged: how many requests of this round were acknowledged.
    """

    commits_sent: dict[GroupPartition, int] = field(default_factory=dict)
    commits_kept: dict[GroupPartition, int] = field(default_factory=dict)
    records_sent: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(TOPIC_PARTITIONS), 0))
    records_kept: dict[int, dict[int, int]] = field(default_factory=lambda: {it: {} for it in range(TOPIC_PARTITIONS)})
    acknowledged: int = 0


class Writers:
    """Threads that write until the broker dies under them; each key and each partition has one writer."""

    def __init__(self, ledger: Ledger, port: int, *, acknowledgements: int) -> None:
        self._ledger = ledger
        self._port = port
        self._wanted = acknowledgements
        self._lock = threading.Lock()
        self._is_enough = threading.Event()
        self.refusals: list[str] = []
        # Depth: requests in flight at once. With several, the broker dies with some of them in every stage.
        self._threads = [self._thread(self._commit, group, 1 + number % 4) for number, group in enumerate(GROUPS)]
        self._threads += [
            self._thread(self._produce, partition, 1 + partition) for partition in range(TOPIC_PARTITIONS)
        ]

    def _thread(self, writer: Callable[[Connection, Any, int], None], key: object, depth: int) -> threading.Thread:
        return threading.Thread(target=self._until_it_dies, args=(writer, key, depth), daemon=True)

    def _until_it_dies(self, writer: Callable[[Connection, Any, int], None], key: object, depth: int) -> None:
        try:
            with Connection(self._port) as connection:
                while not self.refusals:
                    writer(connection, key, depth)
        except ConnectionError:
            return
        except Exception as error:
            self._refused(repr(error))
            raise

    def run_until_killed(self, broker: ServedKohort) -> None:
        """Write, kill the broker in the middle once enough was acknowledged, and end."""
        self._ledger.acknowledged = 0
        for thread in self._threads:
            thread.start()
        is_enough = self._is_enough.wait(WAIT_SECONDS_MAX)
        broker.kill()
        for thread in self._threads:
            thread.join(WAIT_SECONDS_MAX)
            assert not thread.is_alive()
        assert not self.refusals, f"{self.refusals}; the broker said:\n{broker.log_tail()}"
        assert is_enough, f"{self._ledger.acknowledged} of {self._wanted} requests were acknowledged"

    def _acknowledged(self) -> None:
        with self._lock:
            self._ledger.acknowledged += 1
            if self._ledger.acknowledged >= self._wanted:
                self._is_enough.set()

    def _refused(self, why: str) -> None:
        self.refusals.append(why)
        self._is_enough.set()

    def _commit(self, connection: Connection, group: str, depth: int) -> None:
        """Some commits of one group over all partitions in one go, each with an offset higher than the one before."""
        keys = [(group, partition) for partition in range(TOPIC_PARTITIONS)]
        offsets: list[int] = []
        for _ in range(depth):
            offset = self._ledger.commits_sent.get(keys[0], 0) + 1
            self._ledger.commits_sent.update(dict.fromkeys(keys, offset))
            connection.send(ApiKey.OFFSET_COMMIT, 9, commit_request(group, offset))
            offsets.append(offset)
        for offset in offsets:
            code = commit_code(connection.receive(ApiKey.OFFSET_COMMIT, 9))
            if code:
                self._refused(f"a commit was answered with {ErrorCode(code).name}")
                return
            self._ledger.commits_kept.update(dict.fromkeys(keys, offset))
            self._acknowledged()

    def _produce(self, connection: Connection, partition: int, depth: int) -> None:
        """Some batches of one partition in one go, of one to three records."""
        batches: list[range] = []
        for number in range(depth):
            first = self._ledger.records_sent[partition]
            values = range(first, first + 1 + (first + number) % 3)
            self._ledger.records_sent[partition] = values.stop
            connection.send(ApiKey.PRODUCE, 9, produce_request(partition, values))
            batches.append(values)
        for values in batches:
            (topic,) = connection.receive(ApiKey.PRODUCE, 9).responses
            (produced,) = topic.partition_responses
            if produced.error_code:
                self._refused(f"a batch was answered with {ErrorCode(produced.error_code).name}")
                return
            self._ledger.records_kept[partition].update(enumerate(values, produced.base_offset))
            self._acknowledged()


def commit_request(group: str, offset: int) -> Any:
    """The same offset for every partition, and its number as metadata."""
    partitions = [
        messages.OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=-1,
            committed_metadata=str(offset),
        )
        for partition in range(TOPIC_PARTITIONS)
    ]
    return messages.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[messages.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)],
    )


def commit_code(response: Any) -> int:
    return max(int(partition.error_code) for topic in response.topics for partition in topic.partitions)


def produce_request(partition: int, values: Sequence[int]) -> Any:
    records = [BatchRecord(key=None, value=str(value).encode()) for value in values]
    data = messages.ProduceRequestPartitionProduceData(
        index=partition, records=bytes(build_batch(records, timestamp_ms=1_700_000_000_000))
    )
    topic = messages.ProduceRequestTopicProduceData(name=TOPIC, partition_data=[data])
    return messages.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


# -- a broker that is ready, and what it has -----------------------------------------------------------------------------


def create_topic(broker: ServedKohort) -> None:
    topic = messages.CreateTopicsRequestCreatableTopic(
        name=TOPIC, num_partitions=TOPIC_PARTITIONS, replication_factor=1
    )
    with Connection(broker.port) as connection:
        request = messages.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        created = connection.ask(ApiKey.CREATE_TOPICS, 7, request)
    assert created.topics[0].error_code == ErrorCode.NONE


def await_coordinators(broker: ServedKohort) -> None:
    """Until every group's coordinator answers."""
    find = messages.FindCoordinatorRequest(coordinator_keys=GROUPS)
    with Connection(broker.port) as connection:

        def found() -> bool | None:
            coordinators = connection.ask(ApiKey.FIND_COORDINATOR, 4, find).coordinators
            codes = [it.error_code for it in coordinators] + [it.error_code for it in fetch_groups(connection)]
            if not any(codes):
                return True
            assert NOT_YET.issuperset(code for code in codes if code)
            return None

        wait_until(found, what="the coordinators")


def fetch_groups(connection: Connection) -> Sequence[Any]:
    groups = [messages.OffsetFetchRequestGroup(group_id=group, topics=None) for group in GROUPS]
    answered = connection.ask(ApiKey.OFFSET_FETCH, 8, messages.OffsetFetchRequest(groups=groups))
    found: Sequence[Any] = answered.groups
    return found


def read_commits(broker: ServedKohort) -> dict[GroupPartition, tuple[int, str]]:
    """Offset and metadata of everything committed."""
    with Connection(broker.port) as connection:
        return {
            (group.group_id, partition.partition_index): (partition.committed_offset, partition.metadata)
            for group in fetch_groups(connection)
            for topic in group.topics
            for partition in topic.partitions
        }


def read_partition(broker: ServedKohort, partition: int) -> dict[int, int]:
    """Value by offset of everything in a partition, in the order of the log."""
    with Connection(broker.port) as connection:
        return dict(_fetch_all(connection, partition))


def _fetch_all(connection: Connection, partition: int) -> Iterator[tuple[int, int]]:
    offset = 0
    while True:
        wanted = messages.FetchRequestFetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=FETCH_BYTES
        )
        request = messages.FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=FETCH_BYTES,
            session_epoch=-1,
            topics=[messages.FetchRequestFetchTopic(topic=TOPIC, partitions=[wanted])],
        )
        ((fetched,),) = [topic.partitions for topic in connection.ask(ApiKey.FETCH, 11, request).responses]
        assert fetched.error_code == ErrorCode.NONE, f"offset {offset}: {ErrorCode(fetched.error_code).name}"
        if not fetched.records:
            assert offset == fetched.high_watermark
            return
        data = bytes(fetched.records)
        for position, header in iter_batches(data):
            for record in read_records(data[position : position + 12 + header.length], header=header):
                if record.offset >= offset:
                    yield record.offset, int(record.value or b"")
                    offset = record.offset + 1


def check(ledger: Ledger, broker: ServedKohort) -> None:
    """
    Everything acknowledged is there, and nothing that was never sent.

    What is seen now was told to a client, so from now on it may not go either: the ledger takes it over.
    """
    commits = read_commits(broker)
    for key, kept in ledger.commits_kept.items():
        assert key in commits, f"{key}: {kept} was acknowledged, and nothing is there"
        offset, metadata = commits[key]
        assert kept <= offset <= ledger.commits_sent[key], f"{key}: {kept} was acknowledged, and {offset} is there"
        assert metadata == str(offset)
    assert commits.keys() <= ledger.commits_sent.keys()
    ledger.commits_kept = {key: offset for key, (offset, _) in commits.items()}
    for partition, kept_records in ledger.records_kept.items():
        records = read_partition(broker, partition)
        assert list(records) == list(range(len(records)))
        values = list(records.values())
        assert values == sorted(set(values)), "records were doubled or changed places"
        assert not values or values[-1] < ledger.records_sent[partition]
        lost = kept_records.items() - records.items()
        assert not lost, f"partition {partition}: acknowledged, and not there: {sorted(lost)[:5]}"
        ledger.records_kept[partition] = records
