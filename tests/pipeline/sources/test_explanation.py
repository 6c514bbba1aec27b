"""What is read is told before it is read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.client.security import PLAINTEXT
from kohort.pipeline import explain, read
from kohort.pipeline.sources.explanation import explanation, summary
from kohort.pipeline.sources.live import FetchTask, LiveLog
from kohort.pipeline.sources.options import SourceOptions


def test_a_directory(recorded: Callable[[str], Path]) -> None:
    logs = recorded("main") / "logs"
    size = sum(file.stat().st_size for file in logs.glob("__consumer_offsets-*/*.log"))
    told = explain(str(logs), {"topics": "__consumer_offsets", "kinds": "offset_commit", "to": "1795252830000"})
    assert told.splitlines() == [
        f"source:  {logs}",
        f"logs:    __consumer_offsets ({len(list(logs.glob('__consumer_offsets-*')))} partitions)",
        f"size:    {size / 1e6:,.1f} MB",
        f"tasks:   1, the largest of {size / 1e6:,.1f} MB",
        "kinds:   offset_commit",
        "columns: all",
        "time:    before 1795252830000 ms",
    ]


def test_a_cluster() -> None:
    logs = [LiveLog("orders", 0, 10, 1_500, "h", 1), LiveLog("orders", 1, 0, 0, "h", 1)]
    tasks = [FetchTask(number, log, PLAINTEXT) for number, log in enumerate(logs)]
    options = SourceOptions.parse({"path": "kafka://h:1", "columns": "group,offset", "from": "5"})
    assert summary(options, tasks) == "kohort kafka://h:1: 2 logs, 1,490 offsets in 2 tasks"
    told = explanation(options, tasks)
    for line in ("orders (2 partitions)", "tasks:   2\n", "columns: group, offset", "from 5 ms"):
        assert line in told


def test_nothing(tmp_path: Path) -> None:
    assert "logs:    none" in explain(str(tmp_path))


@pytest.mark.spark
def test_the_plan_of_spark_tells_it(
    spark: Any, recorded: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    logs = recorded("main") / "logs"
    read(spark, str(logs)).where("kind = 'marker'").explain()
    printed = capsys.readouterr().out
    assert f"MapInArrow kohort {logs}: " in printed
    assert " MB in 1 task(" in printed
