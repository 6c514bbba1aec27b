"""A small data directory with a file of every kind, and all that a start of it answers: for trials that damage its files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from kohort.broker.catalog.catalog import Catalog, new_topic_id
from kohort.broker.catalog.view import CatalogChange, Topic
from kohort.broker.topics.directory_check import check_directory
from kohort.broker.topics.strays import rename_strays
from kohort.model.errors import KohortError, StorageError
from kohort.model.ids import TopicPartition
from kohort.runtime.loading.loader import load
from kohort.runtime.loading.windows import LoadSummary
from kohort.storage.batchset import iter_spans
from kohort.storage.disk import DiskStore
from kohort.storage.durability.flush_coordinator import CHECKPOINT_INTERVAL_MS
from kohort.storage.log import LogConfig
from kohort.storage.logs.disklog import DiskLog
from kohort.wire.batches import BatchRecord, build_batch, check_crc, read_records
from kohort_lab.crashed_disk import Kept, Tree, read_tree
from kohort_lab.faulty_files import FaultyFiles
from tests.runtime.harness import batch_of
from tests.runtime.shards import PutSerde
from tests.runtime.test_loader import fresh
from tests.storage.owner import Owner, abandon
from tests.wire.control_batches import control_batch

CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150)
ORDERS, STATE = "orders", "__state"
PARTITIONS = {ORDERS: 2, STATE: 1}
STOPS = ("stopped", "killed", "power cut")
COUNT = 24
TIMES_MS = (0, 1005, 1010, 1020, 9999)

Answers = dict[str, Any]
"""By question: an answer, or the error in which a sentence says that there is none."""


def left_behind(root: Path, stop: str) -> tuple[Tree, Answers]:
    """The files that a stop leaves, and the answers before the stop."""
    with FaultyFiles(root) as files:
        owner = Owner()
        store = owner.disk(root, journal_file_bytes=1 << 14)
        catalog = Catalog(store, owner.clock)
        topics = {name: Topic(name, new_topic_id(), count) for name, count in PARTITIONS.items()}
        for topic in topics.values():
            catalog.change(CatalogChange(put=(topic,)), lambda _code: None)
        catalog.reserve_producer_ids(0, 1000, lambda _code, _first: None)
        logs = [store.open(TopicPartition(ORDERS, index), topics[ORDERS].topic_id, CONFIG) for index in range(2)]
        state = store.open(TopicPartition(STATE, 0), topics[STATE].topic_id, CONFIG)
        for number in range(COUNT):
            append(logs[0], number)
            logs[1].append(plain(number), leader_epoch=0)
            state.append(batch_of([(b"key %d" % (number % 5), b"%d" % number)]), leader_epoch=0)
            if number in (COUNT // 3, 2 * COUNT // 3):
                store.flush()
                logs[0].delete_before(3)
                owner.clock.set(owner.clock.now_ms() + CHECKPOINT_INTERVAL_MS)
            owner.run_turn()
            store.flush()
            settle(owner, store)
        answers = ask(store, catalog)
        if stop == "stopped":
            store.close()
            return read_tree(root), answers
        abandon(store)
        if stop == "killed":
            return read_tree(root), answers
        disk = files.disk()
        for operation in files.operations:
            disk.apply(operation)
        return disk.crash(Random(0), Kept.NONE), answers


def settle(owner: Owner, store: DiskStore) -> None:
    """Wait for a checkpoint that is running."""
    owner.wait_for(lambda: store._flush_coordinator.checkpoints.running is None)
    owner.run_posted()


def plain(number: int) -> bytes:
    return build_batch([BatchRecord(b"k", b"value %d" % number, timestamp_ms=1000 + number)], timestamp_ms=1000)


def append(log: DiskLog, number: int) -> None:
    """Plain batches, batches of an idempotent producer, and a transactional producer that commits and aborts in turn."""
    leader_epoch = number // 10
    if number % 8 == 7:
        marker = control_batch(
            producer_id=5, producer_epoch=0, committed=number == 15, coordinator_epoch=0, timestamp_ms=1000
        )
        log.append(marker, leader_epoch=leader_epoch)
        return
    producer: dict[str, Any] = {}
    if number % 4 == 2:
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number // 4, "transactional": True}
    elif number % 4 == 0:
        producer = {"producer_id": 6, "producer_epoch": 1, "base_sequence": number // 4}
    records = [BatchRecord(b"k", b"value %d" % number, timestamp_ms=1000 + number)]
    log.append(build_batch(records, timestamp_ms=1000, **producer), leader_epoch=leader_epoch)


def start_and_ask(root: Path) -> Answers:
    """
    Raises:
        KohortError: the start is refused with a sentence.
    """
    owner = Owner()
    store = owner.disk(root, journal_file_bytes=1 << 14, check=check_directory)
    try:
        catalog = Catalog(store, owner.clock)
        rename_strays(store, catalog)
        return ask(store, catalog)
    finally:
        store.close()


def ask(store: DiskStore, catalog: Catalog) -> Answers:
    answers: Answers = {
        "topics": {topic.name: (topic.topic_id, topic.partition_count) for topic in catalog.topics()},
        "producer ids": catalog.next_producer_id,
        "cluster id": store.cluster_id,
    }
    for name, count in PARTITIONS.items():
        topic = catalog.topic(name)
        for index in range(count if topic is not None else 0):
            assert topic is not None
            try:
                log = store.open(TopicPartition(name, index), topic.topic_id, CONFIG)
            except StorageError as error:
                answers[f"{name}-{index}"] = error
                continue
            answers.update({f"{name}-{index} {question}": answer for question, answer in ask_log(log)})
    return answers


def ask_log(log: DiskLog) -> Iterator[tuple[str, Any]]:
    yield "start", log.log_start_offset
    yield "end", log.end_offset
    yield "high watermark", log.high_watermark
    for offset in range(COUNT + 2):
        yield f"record {offset}", asked(lambda offset=offset: record_at(log, offset))  # type: ignore[misc]
        yield f"aborted {offset}", asked(lambda offset=offset: aborted_at(log, offset))  # type: ignore[misc]
    for timestamp_ms in TIMES_MS:
        yield f"time {timestamp_ms}", asked(lambda time=timestamp_ms: log.offset_for_timestamp(time))  # type: ignore[misc]
    yield "largest time", asked(log.max_timestamp)
    for leader_epoch in range(4):
        yield f"epoch {leader_epoch}", log.end_offset_for_epoch(leader_epoch)
    yield "leader epoch", log.leader_epoch
    yield (
        "producers",
        {
            producer_id: (state.producer_epoch, state.last_sequence, state.transaction_offset)
            for producer_id, state in log.producers.states.items()
        },
    )
    if log.topic_partition.topic == STATE:
        yield "state", asked(lambda: state_of(log))


def asked(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except StorageError as error:
        return error


def record_at(log: DiskLog, offset: int) -> Any:
    """The batch at an offset as a client sees it: a batch with a wrong checksum is an error."""
    data = log.read(offset, bytes_max=1)
    if not data:
        return None
    (span,) = iter_spans(data)
    if not check_crc(data):
        return StorageError("the client finds a wrong checksum")
    leader_epoch = int.from_bytes(data[12:16], "big", signed=True)
    if data[22] & 0x20:
        return span[2], span[3], leader_epoch, "marker"
    return span[2], span[3], leader_epoch, [(record.offset, record.value) for record in read_records(data)]


def aborted_at(log: DiskLog, offset: int) -> Any:
    """The aborted transactions of the batch at an offset. A log may add some that begin behind it."""
    data = log.read(offset, bytes_max=1)
    if not data:
        return []
    last_offset = next(iter_spans(data))[3]
    found = log.aborted_transactions(offset, data)
    return [
        (each.producer_id, each.first_offset, each.last_offset) for each in found if each.first_offset <= last_offset
    ]


def state_of(log: DiskLog) -> dict[str, int]:
    shard = fresh()
    for _ in load(log, shard, PutSerde(), LoadSummary(), start=log.log_start_offset, end=log.end_offset):
        pass
    return dict(shard.table.items())


def outcome(root: Path, expected: Answers) -> tuple[str, str]:
    """A row of the table, and details of what is wrong."""
    try:
        found = start_and_ask(root)
    except KohortError as error:
        return "start refused", str(error)
    except Exception as error:  # noqa: BLE001 -- this is what the trial looks for
        return "TRACEBACK", repr(error)
    errors = [question for question, answer in found.items() if isinstance(answer, Exception)]
    wrong = [
        f"{question}: {found.get(question)!r} for {answer!r}".replace("; ", ", ")
        for question, answer in expected.items()
        if not is_right(question, answer, found)
    ]
    if wrong:
        return "WRONG", "; ".join(wrong)
    if any(question in ("orders-0", "orders-1", "__state-0") for question in errors):
        return "partition not loaded", ""
    return ("refused to the reader" if errors else "as before"), ""


def is_right(question: str, expected: Any, found: Answers) -> bool:
    partition = question.split(" ", maxsplit=1)[0]
    if isinstance(found.get(partition), Exception) or isinstance(found.get(question), Exception):
        return True
    answer = found.get(question)
    if question.endswith("leader epoch") and isinstance(answer, int):
        return bool(answer >= expected)  # an epoch may begin
    if isinstance(expected, Exception):
        return False
    return bool(answer == expected)
