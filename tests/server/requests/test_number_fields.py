"""
Every number of a request meets the edges of its type: each is answered, the broker serves others, and it starts again.

Requests are recorded ones, and our own for the other APIs. The walk over their fields follows the schemas, so a new field is
part of it without more.
"""

import logging
import math
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from kohort.broker.apis.api_table import served_versions
from kohort.model.ids import INTERNAL_TOPICS
from kohort.runtime.processors import InlineProcessor
from kohort.server.coordinators.coordinators import Coordinators
from kohort.server.coordinators.entries import COORDINATORS
from kohort.testing.virtual import VirtualNode
from kohort.wire import messages as m
from kohort.wire.apis import API_KEYS, ApiKey
from kohort.wire.headers import read_request_header
from kohort.wire.readers import request_reader
from kohort.wire.schema import message
from tests.broker.harness import Harness, batch, disk_store
from tests.broker.recorded import WIRE, frames
from tests.broker.test_any_request import NEWEST, own_requests

EDGES: dict[str, tuple[float, ...]] = {
    "int8": (-128, -1, 0, 1, 127),
    "int16": (-(1 << 15), -1, 0, 1, (1 << 15) - 1),
    "uint16": (0, 1, (1 << 16) - 1),
    "int32": (-(1 << 31), -1, 0, 1, (1 << 31) - 1),
    "uint32": (0, 1, (1 << 32) - 1),
    "int64": (-(1 << 63), -2, -1, 0, 1, (1 << 63) - 1),
    "float64": (5e-324, -0.0, -1.0, 1e308, math.inf, -math.inf, math.nan),
}
MINUTE_MS = 60_000
SETTINGS = {
    "log_cleaner_enable": "false",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
    "share_coordinator_state_topic_num_partitions": "1",
    "group_initial_rebalance_delay_ms": "0",
}


class Served:
    """
    A broker with all coordinators, in virtual time.

    Args:
        before: the broker whose data it finds.
        path: where its data is; None for memory.
        configs: configurations of the start, with underscores.
    """

    def __init__(self, before: "Served | None" = None, path: Path | None = None, **configs: str) -> None:
        node = VirtualNode() if before is None else before.harness.node
        kept: dict[str, Any] = {"node": node}
        if path is not None:
            kept["store"] = disk_store(path, node)
        elif before is not None:
            kept["store"] = before.harness.store
        self.harness: Harness = Harness(release=NEWEST, **kept | SETTINGS | configs)
        broker = self.harness.broker
        hosted = Coordinators(node.defer)
        processor = partial(InlineProcessor, node.wheel, node.defer, node.call_soon)
        if before is None:
            for topic in INTERNAL_TOPICS:
                self.harness.create(topic)
        hosted.start(
            COORDINATORS,
            broker,
            processor,
        )
        hosted.load()
        for topic in INTERNAL_TOPICS:
            self.harness.coordinators[topic] = hosted.marker_writer(topic)
        self.harness.coordinators.verification = hosted.verification
        self.harness.coordinators.persister = hosted.persister
        node.settle()

    def check(self, name: str) -> None:
        """Another client is served: topics, records, groups and transactions."""
        harness = self.harness
        harness.create(name)
        assert harness.write(name, b"x") == 0
        partition = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        commit = m.OffsetCommitRequest(
            group_id=name, topics=[m.OffsetCommitRequestTopic(name=name, partitions=[partition])]
        )
        (topic,) = harness.ask(ApiKey.OFFSET_COMMIT, commit, version=9).topics
        assert topic.partitions[0].error_code == 0
        begin = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1_000)
        assert harness.ask(ApiKey.INIT_PRODUCER_ID, begin, version=4).error_code == 0


@cache
def samples() -> dict[ApiKey, tuple[int, Any]]:
    """For each API of the newest release, a request with the most numbers, of the newest version that there is."""
    served = Served().harness.broker.handlers
    found: dict[ApiKey, tuple[int, Any]] = {}
    for request in own_requests():
        api_key = next(key for key in served if type(request).__name__ == f"{key.api_name}Request")
        offer(found, api_key, served_versions(NEWEST)[api_key][1], request)
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        for frame in frames(path):
            api_key = API_KEYS[frame["api_key"]]
            if frame["dir"] == "request" and api_key in served:
                body = bytes.fromhex(frame["hex"])
                request = request_reader(api_key, frame["api_version"])(body, read_request_header(body)[4])
                offer(found, api_key, frame["api_version"], request)
    assert set(found) == set(served)
    return found


def offer(found: dict[ApiKey, tuple[int, Any]], api_key: ApiKey, version: int, request: Any) -> None:
    score = (version, sum(1 for _ in variants(api_key, request, version)))
    known = found.get(api_key)
    if known is None or score > (known[0], sum(1 for _ in variants(api_key, known[1], known[0]))):
        found[api_key] = version, request


def variants(api_key: ApiKey, request: Any, version: int) -> Iterator[tuple[str, Any]]:
    """The request with one number changed, and what was changed. Of an array the first element is."""
    structs = message(f"{api_key.api_name}Request").structs

    def within(value: Any) -> Iterator[tuple[str, Any]]:
        for field in structs[type(value).__name__]:
            present = getattr(value, field.name)
            if not field.is_in(version) or present is None:
                continue
            changes: Iterable[tuple[str, Any]]
            if field.type in EDGES:
                changes = [(f"={edge}", edge) for edge in EDGES[field.type]]
            elif field.type in structs:
                first = present[0] if field.array and present else present
                changes = within(first) if type(first).__name__ in structs else ()
            else:
                continue
            for where, change in changes:
                new = [change, *present[1:]] if field.array else change
                fields = {each.name: getattr(value, each.name) for each in structs[type(value).__name__]}
                yield f".{field.name}{where}", getattr(m, type(value).__name__)(**fields | {field.name: new})

    return within(request)


@pytest.mark.parametrize("api_key", sorted(Served().harness.broker.handlers), ids=lambda api_key: api_key.api_name)
def test_every_number_of_a_request(api_key: ApiKey, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    version, sample = samples()[api_key]
    served = Served()
    served.harness.create("t", 2)
    served.harness.write("t", b"x")
    for where, request in variants(api_key, sample, version):
        answers = served.harness.begin(api_key, request, version=version)
        served.harness.node.settle()
        assert len(answers) <= 1, where
    served.check("others")
    served.harness.node.advance(10 * MINUTE_MS)
    served.check("later")
    again = Served(served)
    again.harness.node.advance(MINUTE_MS)
    again.check("again")
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("timestamp_ms", EDGES["int64"])
@pytest.mark.parametrize(
    "configs",
    [
        {},
        {"retention_ms": "1"},
        {"retention_ms": "9223372036854775807", "segment_ms": "1"},
        {"message_timestamp_before_max_ms": "0", "message_timestamp_after_max_ms": "9223372036854775807"},
        {"cleanup_policy": "compact", "max_compaction_lag_ms": "1", "delete_retention_ms": "9223372036854775807"},
    ],
)
def test_every_timestamp_of_a_record(timestamp_ms: int, configs: dict[str, Any], tmp_path: Path) -> None:
    served = Served(path=tmp_path)
    harness = served.harness
    harness.create("t", **configs)
    for late_ms in (0, 1):
        harness.node.advance(late_ms)
        harness.produce("t", {0: batch(b"x", timestamp_ms=timestamp_ms)})
        for wanted_ms in EDGES["int64"]:
            partition = m.ListOffsetsPartition(partition_index=0, timestamp=int(wanted_ms))
            request = m.ListOffsetsRequest(topics=[m.ListOffsetsTopic(name="t", partitions=[partition])], replica_id=-1)
            assert len(harness.ask(ApiKey.LIST_OFFSETS, request, version=7).topics) == 1
    harness.node.advance(10 * MINUTE_MS)
    served.check("later")
    harness.store.close()
    again = Served(served, tmp_path)
    again.check("again")
    again.harness.store.close()
