"""
Topics made, grown, configured, written to, deleted and made again, in any order, with power cuts in between: what was answered
is so afterwards, what was under way has happened in its order or not at all, and no topic has another one's records.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.catalog.catalog import CATALOG
from kohort.broker.catalog.view import Topic
from kohort.storage.disk import DiskStore
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.batches import iter_batches, read_records
from kohort_lab.faulty_files import FaultyFiles
from tests.broker.harness import Harness, batch, produce_request
from tests.conftest import LONG
from tests.storage.compacted import make_durable
from tests.storage.conftest import IN_MEMORY
from tests.storage.owner import Owner
from tests.storage.power_cut import cut_power

NAMES = ["a", "a-0"]
NO_TIME_LIMIT_MS = 1 << 30

names = st.sampled_from(["a", "a", "a", "a-0"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("create"), names, st.integers(1, 2)),
        st.tuples(st.just("delete"), names),
        st.tuples(st.just("make_anew"), names),
        st.tuples(st.just("grow"), names),
        st.tuples(st.just("configure"), names, st.integers(1, 9)),
        st.tuples(st.just("write"), names, st.integers(0, 2)),
        st.tuples(st.just("fill"), names),
        st.tuples(st.just("delete_records"), names, st.integers(0, 100)),
        st.tuples(st.just("turn")),
        st.tuples(st.just("wait")),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("stop")),
        st.tuples(st.just("crash"), st.integers(0, 1 << 16)),
    ),
    min_size=5,
    max_size=60,
)

View: TypeAlias = dict[str, Topic]


@dataclass
class Written:
    """
    What was sent to a partition: the records from offset 0 on, how many of them were acknowledged, and where it begins.

    Attributes:
        start, durable_start: the largest that was asked for, and the largest that was answered.
    """

    values: list[bytes] = field(default_factory=list)
    acknowledged: int = 0
    start: int = 0
    durable_start: int = 0


@dataclass
class Asked:
    """A request under way: the list into which its answer falls, and what follows from a good one."""

    answers: list[Any]
    is_good: Callable[[Any], bool]
    then: Callable[[], None]


class Run(ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self.base = Path(self.enter_context(TemporaryDirectory(dir=IN_MEMORY)))
        self.owner, self.starts, self.count = Owner(), 0, 0
        self.views: list[View] = [{}]
        """What there is after each change to the topics; the first is certain."""
        self.data: dict[tuple[UUID, int], Written] = {}
        self.path = self.base / "0"
        self.files = self.enter_context(FaultyFiles(self.path))
        self.open()

    def open(self) -> None:
        self.asked: list[Asked] = []
        self.store: DiskStore = self.owner.disk(self.path)
        self.harness = Harness(store=self.store, node=self.owner.node)
        self.catalog = self.harness.broker.catalog

    # What is done

    def ask(
        self,
        key: ApiKey,
        request: Any,
        is_good: Callable[[Any], bool],
        then: Callable[[], None],
        version: int | None = None,
    ) -> None:
        self.asked.append(Asked(self.harness.begin(key, request, version=version), is_good, then))
        self.take_answers()

    def change(self, key: ApiKey, request: Any, is_good: Callable[[Any], bool]) -> None:
        """Ask for a change of topics, after which they are as the catalog's newest view says."""

        def certain() -> None:
            del self.views[: next(place for place, known in enumerate(self.views) if known is view)]

        answers = self.harness.begin(key, request)
        view = {name: topic for name in NAMES if (topic := self.catalog.newest(name)) is not None}
        if view != self.views[-1]:
            self.views.append(view)
            self.asked.append(Asked(answers, is_good, certain))
        self.take_answers()

    def create(self, name: str, count: int) -> None:
        wanted = m.CreateTopicsRequestCreatableTopic(name=name, num_partitions=count, replication_factor=1)
        request = m.CreateTopicsRequest(topics=[wanted], timeout_ms=NO_TIME_LIMIT_MS)
        self.change(ApiKey.CREATE_TOPICS, request, lambda answer: answer.topics[0].error_code == 0)

    def delete(self, name: str) -> None:
        request = m.DeleteTopicsRequest(
            topics=[m.DeleteTopicsRequestDeleteTopicState(name=name, topic_id=None)], timeout_ms=NO_TIME_LIMIT_MS
        )
        self.change(ApiKey.DELETE_TOPICS, request, lambda answer: answer.responses[0].error_code == 0)

    def make_anew(self, name: str) -> None:
        """At once: nobody sees that there is none in between."""
        self.delete(name)
        self.create(name, 1)

    def fill(self, name: str) -> None:
        """A few records that are acknowledged, of a topic that is there."""
        self.create(name, 1)
        self.wait()
        for _ in range(3):
            self.write(name, 0)
        self.wait()

    def grow(self, name: str) -> None:
        topic = self.catalog.newest(name)
        if topic is not None and topic.partition_count < 3:
            wanted = m.CreatePartitionsTopic(name=name, count=topic.partition_count + 1, assignments=None)
            request = m.CreatePartitionsRequest(topics=[wanted], timeout_ms=NO_TIME_LIMIT_MS)
            self.change(ApiKey.CREATE_PARTITIONS, request, lambda answer: answer.results[0].error_code == 0)

    def configure(self, name: str, retention: int) -> None:
        change = m.IncrementalAlterConfigsRequestAlterableConfig(
            name="retention.ms", config_operation=0, value=str(retention << 40)
        )
        resource = m.IncrementalAlterConfigsRequestAlterConfigsResource(
            resource_type=2, resource_name=name, configs=[change]
        )
        request = m.IncrementalAlterConfigsRequest(resources=[resource])
        self.change(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, lambda answer: answer.responses[0].error_code == 0)

    def write(self, name: str, index: int) -> None:
        topic = self.catalog.topic(name)
        if topic is None or index >= topic.partition_count:
            return
        written = self.data.setdefault((topic.topic_id, index), Written())
        self.count += 1
        value = f"{topic.topic_id} {self.count}".encode()
        written.values.append(value)
        end = len(written.values)

        def acknowledged() -> None:
            written.acknowledged = max(written.acknowledged, end)

        self.ask(
            ApiKey.PRODUCE,
            produce_request(name, {index: batch(value)}, acks=-1),
            lambda answer: answer.responses[0].partition_responses[0].error_code == 0,
            acknowledged,
            version=12,
        )

    def delete_records(self, name: str, percent: int) -> None:
        topic = self.catalog.topic(name)
        written = None if topic is None else self.data.get((topic.topic_id, 0))
        partition = None if topic is None else self.harness.broker.partitions.find(name, 0)
        if written is None or partition is None:
            return
        offset = partition.log.high_watermark * percent // 100
        written.start = max(written.start, offset)

        def durable() -> None:
            written.durable_start = max(written.durable_start, offset)

        asked = m.DeleteRecordsPartition(partition_index=0, offset=offset)
        request = m.DeleteRecordsRequest(
            topics=[m.DeleteRecordsTopic(name=name, partitions=[asked])], timeout_ms=NO_TIME_LIMIT_MS
        )
        self.ask(ApiKey.DELETE_RECORDS, request, lambda a: a.topics[0].partitions[0].error_code == 0, durable)

    def take_answers(self) -> None:
        for asked in [asked for asked in self.asked if asked.answers]:
            self.asked.remove(asked)
            if asked.is_good(asked.answers[0]):
                asked.then()

    def turn(self) -> None:
        self.owner.run_turn()
        self.owner.run_posted()
        self.take_answers()

    def wait(self) -> None:
        self.owner.wait_for(lambda: all(asked.answers for asked in self.asked))
        self.take_answers()
        assert len(self.views) == 1, "every change was answered"

    def checkpoint(self) -> None:
        make_durable(self.owner, self.store)
        self.take_answers()

    def stop(self) -> None:
        self.wait()
        self.store.close()
        self.open()
        self.compare()

    def crash(self, seed: int) -> None:
        self.turn()
        self.abandon()
        self.starts += 1
        self.path = self.base / str(self.starts)
        cut_power(self.files, seed, self.path)
        self.files = self.enter_context(FaultyFiles(self.path))
        self.open()
        self.compare()

    def abandon(self) -> None:
        """The process is gone."""
        self.harness.broker.log_maintenance.close()
        self.store.cleaner.stop()
        for topic_partition in self.store.partitions():
            log = self.store.get(topic_partition)
            assert log is not None
            log.close("the process was killed")
        self.store._flush_coordinator.stop()
        self.store._lock.release()
        now_ms, self.owner = self.owner.clock.now_ms(), Owner()  # what the dead one has still to do is done by nobody
        self.owner.clock.set(now_ms)

    # What is so

    def compare(self) -> None:
        view = {topic.name: topic for topic in self.catalog.topics()}
        assert view in self.views
        self.views = [view]
        for topic in view.values():
            for index in range(topic.partition_count):
                self.compare_records(topic, index)
        kept = {CATALOG, *((topic.name, index) for topic in view.values() for index in range(topic.partition_count))}
        assert set(self.store.partitions()) <= kept

    def compare_records(self, topic: Topic, index: int) -> None:
        partition = self.harness.broker.partitions.find(topic.name, index)
        assert partition is not None
        log, written = partition.log, self.data.setdefault((topic.topic_id, index), Written())
        assert written.acknowledged <= log.end_offset <= len(written.values)
        assert written.durable_start <= log.log_start_offset <= written.start
        data = log.read(log.log_start_offset, bytes_max=1 << 30)
        found = [
            record.value
            for position, header in iter_batches(data)
            for record in read_records(memoryview(data)[position:], header=header)
        ]
        assert found == written.values[log.log_start_offset : log.end_offset]
        del written.values[log.end_offset :]
        written.acknowledged = log.end_offset
        written.start = written.durable_start = log.log_start_offset


@settings(max_examples=2000 if LONG else 40)
@given(steps)
def test_what_was_answered_is_so_after_a_power_cut(chosen: list[tuple[Any, ...]]) -> None:
    with Run() as run:
        for name, *arguments in chosen:
            getattr(run, name)(*arguments)
        run.stop()
        run.abandon()
