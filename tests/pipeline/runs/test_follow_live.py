"""`kohort pipeline follow` of a running broker that is killed and restarted, and of a topic that is created again."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kohort.client.cluster import Client
from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import published
from kohort.testing.served import ServedKohort
from kohort.wire import messages
from kohort.wire.apis import ApiKey
from tests.clients.waiting import wait_until
from tests.conftest import NIGHTLY
from tests.pipeline.exporter.test_exporter import ORDERS, SETTINGS, commit, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), NIGHTLY]

ENTRY = "from kohort.cli.pipeline.commands import app; app(prog_name='kohort pipeline')"


def lag(out: Path) -> list[tuple[str, int, int | None, int | None]]:
    """Group, committed offset, log end offset and lag, as published; empty before the first version."""
    try:
        rows: list[dict[str, Any]] = published.rows(out, "lag")
    except (ConfigError, OSError):
        return []
    return [(row["group"], row["offset"], row["end_offset"], row["lag"]) for row in rows]


def test_brokers_restart_and_topics_are_created_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ServedKohort(tmp_path / "broker", SETTINGS) as broker:
        asyncio.run(produce(broker.bootstrap, 9))
        asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 4}))
        command = [
            sys.executable,
            "-c",
            ENTRY,
            "follow",
            f"kafka://{broker.bootstrap}",
            "--out",
            str(out),
            "--every",
            "0.5",
        ]
        with (tmp_path / "follow.log").open("w") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:

            def until(expected: list[tuple[str, int, int | None, int | None]]) -> None:
                def is_there() -> bool:
                    assert process.poll() is None, (tmp_path / "follow.log").read_text()
                    return lag(out) == expected

                wait_until(
                    is_there, what=lambda: f"{expected}: {lag(out)} {(tmp_path / 'follow.log').read_text()[-2000:]}"
                )

            until([("g", 4, 9, 5)])
            broker.kill()
            wait_until(lambda: "Again in" in (tmp_path / "follow.log").read_text(), what="a failed poll")
            broker.start()
            asyncio.run(produce(broker.bootstrap, 2))
            asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 10}))
            until([("g", 10, 11, 1)])
            with Client(broker.bootstrap) as client:
                orders = messages.DeleteTopicsRequestDeleteTopicState(name="orders")
                request = messages.DeleteTopicsRequest(topic_names=["orders"], topics=[orders], timeout_ms=9000)
                client.send(ApiKey.DELETE_TOPICS, request)
            asyncio.run(produce(broker.bootstrap, 3))
            asyncio.run(commit(broker.bootstrap, "g", {ORDERS[0]: 1}))
            until([("g", 1, 3, 2)])
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0, (tmp_path / "follow.log").read_text()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    offsets = [row["offset"] for row in published.rows(out, "offset_commits") if row["offset"] is not None]
    assert offsets == [4, 10, 1]
