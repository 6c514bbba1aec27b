"""
Generated scenarios of transactions: two producers over one or two transactional ids, two partitions and a group.

Each request has a version of its own. Epochs, producer ids and transactional ids are mostly the right ones. After each request
that may end a transaction, the transactional id is described until its markers are written.

Partitions that are not in the transaction are written only in versions that answer TRANSACTION_ABORTABLE. Apache Kafka gives
all verifications that wait for its coordinator together the older code if the first of them has an older version.
"""

from typing import Any

from kohort_lab.conformance.generated.writer import ScenarioWriter

_PARTITIONS = (0, 1)
_GROUP = "@g"
_UNSETTLED = {"transaction_states.*.transaction_state": ["PrepareCommit", "PrepareAbort"]}
_FETCH_VERSION = 16
_OFFSET_FETCH_VERSION = 9
_LIST_OFFSETS_VERSION = 10
_SECOND = 5
"""The version from which EndTxn raises the epoch."""
_BATCHED = 4
"""The version from which AddPartitionsToTxn names several transactions."""


class _Producer:
    """The scenario's view of a producer."""

    def __init__(self, name: str, transactional_id: str) -> None:
        self.name = name
        self.transactional_id = transactional_id
        self.sequences = dict.fromkeys(_PARTITIONS, 0)
        self.is_open = False

    @property
    def producer_id(self) -> str:
        return f"$pid_{self.name}"

    @property
    def epoch(self) -> str:
        return f"$epoch_{self.name}"

    @property
    def keep(self) -> dict[str, str]:
        return {f"pid_{self.name}": "producer_id", f"epoch_{self.name}": "producer_epoch"}

    def begin_epoch(self) -> None:
        self.sequences = dict.fromkeys(_PARTITIONS, 0)
        self.is_open = False


class _TransactionScenario:
    def __init__(self, writer: ScenarioWriter) -> None:
        self.writer = writer
        writer.topics["t"] = len(_PARTITIONS)
        writer.broker = writer.pick(("default", "default", "default", "default", "tv1", "tv1", "tv0"))
        self.is_old = writer.broker == "tv0"
        ids = writer.pick((("@tx", "@tx"), ("@tx", "@ty"), ("@tx", "@ty")))
        self.producers = [_Producer(name, transactional_id) for name, transactional_id in zip("ab", ids, strict=True)]
        self.repeatable: list[tuple[str, dict[str, Any], dict[str, Any], str]] = []

    def write(self) -> None:
        for producer in self.producers:
            self.init(producer)
        for _ in range(self.writer.random.randint(8, 18)):
            self.writer.pick(self.actions())(self.writer.pick(self.producers))
        for producer in self.producers:
            self.describe(producer)
        self.fetch(self.producers[0])
        self.read_offsets(self.producers[0])

    def actions(self) -> list[Any]:
        return [
            *(self.init, self.init_expected, self.add, self.add, self.add_offsets, self.verify),
            *(self.produce, self.produce, self.produce, self.produce, self.commit_offsets, self.commit_offsets),
            *(self.end, self.end, self.end, self.again, self.again),
            *(self.describe, self.list, self.fetch, self.fetch, self.list_offsets, self.describe_producers),
            *(self.read_offsets, self.commit_plainly),
        ]

    def identity(self, producer: _Producer) -> dict[str, Any]:
        """Transactional id, producer id and epoch; one of them may be wrong."""
        found: dict[str, Any] = {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
        }
        if self.writer.chance(0.15):
            other = next(each for each in self.producers if each is not producer)
            found |= self.writer.pick(
                (
                    {"producer_epoch": {"$plus": [producer.epoch, 1]}},
                    {"producer_epoch": {"$plus": [producer.epoch, -1]}},
                    {"producer_epoch": {"$plus": [producer.epoch, -1]}},
                    {"producer_id": {"$plus": [producer.producer_id, 1_000_000]}},
                    {"producer_id": other.producer_id, "producer_epoch": other.epoch},
                    {"transactional_id": "@none"},
                )
            )
        return found

    def send(self, api_name: str, version: int, ending: str = "", /, **fields: Any) -> None:
        """Add a request that may be repeated. If it may end a transaction of the id `ending`, await the markers."""
        keywords = {"version": version, **fields.pop("keywords", {})}
        self.writer.send(api_name, keywords, **fields)
        self.repeatable.append((api_name, {"version": version}, fields, ending))
        self.settle(ending)

    def settle(self, transactional_id: str) -> None:
        if transactional_id:
            self.writer.send("DescribeTransactions", {"again_while": _UNSETTLED}, transactional_ids=[transactional_id])

    def again(self, _producer: _Producer) -> None:
        """Repeat one of the latest requests."""
        if self.repeatable:
            api_name, keywords, fields, transactional_id = self.writer.pick(self.repeatable[-3:])
            self.writer.send(api_name, dict(keywords), **fields)
            self.settle(transactional_id)

    def init(self, producer: _Producer) -> None:
        """A producer begins. An open transaction of its id is aborted first, which takes a request of its own."""
        fields = {"transactional_id": producer.transactional_id, "transaction_timeout_ms": 60_000}
        fields |= {"producer_id": -1, "producer_epoch": -1}
        sharing = [each for each in self.producers if each.transactional_id == producer.transactional_id]
        if any(each.is_open for each in sharing):
            self.send("InitProducerId", self.writer.random.randint(0, 5), producer.transactional_id, **fields)
        keywords = {"keywords": {"keep": producer.keep}}
        self.send("InitProducerId", self.writer.random.randint(0, 5), producer.transactional_id, **fields, **keywords)
        for each in sharing:
            each.is_open = False
        producer.begin_epoch()

    def init_expected(self, producer: _Producer) -> None:
        identity = self.identity(producer)
        self.send(
            "InitProducerId",
            self.writer.random.randint(3, 5),
            identity["transactional_id"],
            transaction_timeout_ms=60_000,
            **identity,
        )

    def add(self, producer: _Producer) -> None:
        version = self.writer.random.randint(0, 3 if self.is_old else 5)
        identity = self.identity(producer)
        asked = self.writer.subset((*_PARTITIONS, *self.writer.pick(((), (), (), (9,)))))
        topics = [{"name": "@t", "partitions": sorted(asked)}]
        producer.is_open = True
        self.send("AddPartitionsToTxn", version, **self.add_fields(version, identity, topics, verify_only=False))

    def verify(self, producer: _Producer) -> None:
        version = self.writer.random.randint(4, 5)
        topics = [{"name": "@t", "partitions": sorted(self.writer.subset(_PARTITIONS))}]
        fields = self.add_fields(version, self.identity(producer), topics, verify_only=True)
        self.send("AddPartitionsToTxn", version, **fields)

    def add_fields(
        self, version: int, identity: dict[str, Any], topics: list[dict[str, Any]], *, verify_only: bool
    ) -> dict[str, Any]:
        if version >= _BATCHED:
            return {"transactions": [{**identity, "topics": topics, "verify_only": verify_only}]}
        return {f"v3_and_below_{name}": value for name, value in (identity | {"topics": topics}).items()}

    def add_offsets(self, producer: _Producer) -> None:
        producer.is_open = True
        self.send("AddOffsetsToTxn", self.writer.random.randint(0, 4), group_id=_GROUP, **self.identity(producer))

    def produce(self, producer: _Producer) -> None:
        writer = self.writer
        partition = writer.pick(_PARTITIONS)
        identity = self.identity(producer)
        count = writer.pick((1, 1, 2))
        offset = writer.pick((0, 0, 0, 0, 0, 0, 1, -1))
        batch = {
            "records": [f"{producer.name}{number}" for number in range(count)],
            "producer_id": identity["producer_id"],
            "producer_epoch": identity["producer_epoch"],
            "sequence": max(0, producer.sequences[partition] + offset),
            "transactional": True,
        }
        if offset == 0:
            producer.sequences[partition] += count
        producer.is_open = True
        self.send(
            "Produce",
            11 if self.is_old else writer.pick((11, 12, 12, 13)),
            transactional_id=identity["transactional_id"],
            acks=-1,
            timeout_ms=5_000,
            topic_data=[
                {
                    "name": "@t",
                    "topic_id": "$t.id",
                    "partition_data": [{"index": partition, "records": {"$batch": batch}}],
                }
            ],
        )

    def commit_offsets(self, producer: _Producer) -> None:
        partitions = [
            {"partition_index": index, "committed_offset": self.writer.pick((1, 2, 3)), "committed_metadata": "m"}
            for index in self.writer.subset(_PARTITIONS)
        ]
        producer.is_open = True
        self.send(
            "TxnOffsetCommit",
            4 if self.is_old else self.writer.pick((4, 5, 5)),
            group_id=_GROUP,
            generation_id_or_member_epoch=-1,
            member_id="",
            group_instance_id={"$none": True},
            topics=[{"name": "@t", "partitions": partitions}],
            **self.identity(producer),
        )

    def commit_plainly(self, _producer: _Producer) -> None:
        partition = {"partition_index": self.writer.pick(_PARTITIONS), "committed_offset": 7}
        self.writer.send(
            "OffsetCommit",
            {"version": 7},
            group_id=_GROUP,
            generation_id_or_member_epoch=-1,
            topics=[{"name": "@t", "partitions": [partition]}],
        )

    def end(self, producer: _Producer) -> None:
        writer = self.writer
        version = writer.random.randint(0, 4) if self.is_old else writer.pick((5, 5, 5, 4, writer.random.randint(0, 4)))
        is_begun = producer.is_open
        identity = self.identity(producer)
        keywords = {"keywords": {"keep": producer.keep}} if version >= _SECOND and is_begun else {}
        self.send("EndTxn", version, identity["transactional_id"], committed=writer.chance(0.6), **identity, **keywords)
        producer.is_open = False
        if version >= _SECOND:
            producer.begin_epoch()

    def describe(self, producer: _Producer) -> None:
        self.writer.send("DescribeTransactions", transactional_ids=[producer.transactional_id])

    def list(self, _producer: _Producer) -> None:
        states = self.writer.pick(([], ["Ongoing"], ["Empty", "CompleteAbort"], ["CompleteCommit", "none"]))
        self.writer.send(
            "ListTransactions", state_filters=states, duration_filter=-1, transactional_id_pattern={"$none": True}
        )

    def fetch(self, _producer: _Producer) -> None:
        at = self.writer.pick((0, 0, 1, 2, 3))
        partitions = [
            {"partition": index, "fetch_offset": at, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
            for index in _PARTITIONS
        ]
        self.writer.send(
            "Fetch",
            {"version": _FETCH_VERSION},
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=1,
            session_epoch=-1,
            topics=[{"topic": "@t", "topic_id": "$t.id", "partitions": partitions}],
        )

    def list_offsets(self, _producer: _Producer) -> None:
        partitions = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1} for index in _PARTITIONS]
        self.writer.send(
            "ListOffsets",
            {"version": _LIST_OFFSETS_VERSION},
            replica_id=-1,
            isolation_level=1,
            topics=[{"name": "@t", "partitions": partitions}],
        )

    def describe_producers(self, _producer: _Producer) -> None:
        self.writer.send("DescribeProducers", topics=[{"name": "@t", "partition_indexes": list(_PARTITIONS)}])

    def read_offsets(self, _producer: _Producer) -> None:
        topics = [{"name": "@t", "partition_indexes": list(_PARTITIONS)}]
        self.writer.send(
            "OffsetFetch",
            {"version": _OFFSET_FETCH_VERSION},
            require_stable=self.writer.chance(0.7),
            groups=[{"group_id": _GROUP, "topics": topics}],
        )


def write_transaction_scenario(writer: ScenarioWriter) -> None:
    _TransactionScenario(writer).write()
