"""Every line about a failure names the topic and the partition: several coordinators have partitions of the same number."""

import logging
from typing import Any

import pytest

from kohort.hosting import hosted
from kohort.machine.shard import Result
from tests.runtime.harness import Bench
from tests.runtime.shards import Put, PutSerde, TableShard


def fail(_: Any) -> Any:
    raise RuntimeError("broken")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_failures_of_a_shard_and_of_its_callers(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.runtime.load(1, bench.logs[1], 0)
    bench.node.settle()
    bench.write("raises", lambda _shard, _now_ms: fail(None), 1)
    bench.runtime.write(1, lambda shard, _: shard.put("ok", ("a", 1)), fail, str)
    bench.node.settle()
    bench.logs[1].commit()
    bench.node.settle()
    bench.write("fails", lambda _shard, _now_ms: Result([Put("c", 1)], "ok", on_error=fail), 1)
    bench.write("rude", lambda shard, _: shard.put("ok", ("rude", 1)), 1)
    bench.runtime.unload(1, 1)
    bench.node.settle()
    assert lines(caplog) == [
        "shard.operation_failed partition=state-1",
        "shard.reply_failed partition=state-1",
        "shard.completion_failed partition=state-1",
        "shard.unload_failed partition=state-1",
    ]


def test_a_reply_that_fails_on_a_thread(caplog: pytest.LogCaptureFixture) -> None:
    with hosted(TableShard, PutSerde(), threads=1, topic="votes", partitions=2) as host:
        host.runtime.write(1, lambda _shard, _now_ms: Result(response="at once"), fail, str)
        assert host.write(1, lambda shard, _: shard.put("ok", ("a", 1))) == "ok"
    assert lines(caplog) == ["shard.reply_failed partition=votes-1"]
