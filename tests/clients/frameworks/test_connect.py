"""Kafka Connect's distributed workers: their group, their compacted topics, and exactly-once source tasks."""

import signal
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from kohort.testing.kafka import UnavailableKafkaError
from tests.clients.conftest import Broker
from tests.clients.frameworks.connect import Worker
from tests.clients.transactions.consumers import with_librdkafka, write_end
from tests.clients.waiting import wait_until
from tests.conftest import NIGHTLY

pytestmark = [NIGHTLY, pytest.mark.java, pytest.mark.maven]

FILE_SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
FILE_SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


def test_lines_of_a_file_reach_another_file_once(
    broker: Broker, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Two workers share a source and a sink; one worker is killed, and later the other one is replaced."""
    topic = make_topic(1)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    suffix = uuid4().hex[:8]
    names = {f"{name}.storage.topic": f"connect-{name}-{suffix}" for name in ("config", "offset", "status")}
    settings = {"group_id": f"connect-{suffix}", **names}
    lines = [f"line {number}" for number in range(30)]

    def write(first: int, last: int) -> None:
        with source.open("a") as file:
            file.writelines(f"{line}\n" for line in lines[first:last])

    def has_read(count: int) -> None:
        wait_until(
            lambda: sink.exists() and len(sink.read_text().splitlines()) >= count, what=f"{count} lines in the sink"
        )

    write(0, 10)
    try:
        first = Worker(tmp_path / "first", broker.bootstrap, **settings)
        second = Worker(tmp_path / "second", broker.bootstrap, **settings)
    except UnavailableKafkaError as exc:
        pytest.skip(str(exc))
    with first:
        with second:
            first.ask(
                "PUT",
                "/connectors/source/config",
                {"connector.class": FILE_SOURCE, "file": str(source), "topic": topic},
            )
            first.ask(
                "PUT", "/connectors/sink/config", {"connector.class": FILE_SINK, "file": str(sink), "topics": topic}
            )
            has_read(10)
            assert second.ask("GET", "/connectors") == ["sink", "source"]
            second.ask("PUT", "/connectors/source/pause")
            wait_until(lambda: first.states("source") == ["PAUSED", "PAUSED"], what="the source is paused")
            second.ask("PUT", "/connectors/source/resume")
            second.end(signal.SIGKILL)
        write(10, 20)
        has_read(20)
        for name in ("source", "sink"):
            wait_until(lambda: first.states(name) == ["RUNNING", "RUNNING"], what=f"{name} runs")  # noqa: B023
        offsets = first.ask("GET", "/connectors/source/offsets")["offsets"]
        assert [each["partition"] for each in offsets] == [{"filename": str(source)}]
    write(20, 30)
    with Worker(tmp_path / "third", broker.bootstrap, **settings) as third:
        has_read(30)
        third.ask("DELETE", "/connectors/sink")
        third.ask("DELETE", "/connectors/source")
        assert third.ask("GET", "/connectors") == []
    # The sink is at least once: lines whose offsets a killed worker had not committed are written again.
    written = sink.read_text().splitlines()
    assert list(dict.fromkeys(written)) == lines
    write_end(broker.bootstrap, topic, 0)
    assert with_librdkafka(broker.bootstrap, topic, 0, "read_committed") == lines
