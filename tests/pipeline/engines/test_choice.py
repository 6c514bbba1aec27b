"""Which engine answers, and why; and that the local one needs neither Spark nor Java."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.engines import choice
from kohort.pipeline.engines.choice import AUTO, LOCAL, SPARK, choose, local_bytes_max
from tests.pipeline.logbytes import batch, offset_key, offset_value

ALONE = """import sys
from kohort.cli.pipeline.commands import app
app(sys.argv[1:], standalone_mode=False)
print(sorted({'pyspark', 'py4j', 'pandas'} & set(sys.modules)))
"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A log of commits, and a topic that is larger."""
    for name, pairs in (("__consumer_offsets-0", 3), ("orders-0", 40)):
        directory = tmp_path / name
        directory.mkdir()
        records = [(offset_key("g", "orders", 0), offset_value(at)) for at in range(pairs)]
        (directory / f"{0:020}.log").write_bytes(batch(0, records))
    return tmp_path


# fmt: off
SMALL, LARGE = 1 << 30, 1_000
CHOICES = [  # asked  table           past   master      local bytes  local?
    (AUTO,   "offsets",      False, None,       SMALL, True),
    (AUTO,   "offsets",      False, None,       LARGE, True),    # only the coordinators' logs are read
    (AUTO,   "lag",          False, None,       LARGE, True),
    (AUTO,   "lag",          True,  None,       LARGE, False),   # of the past: all batches of the topics
    (AUTO,   "lag_over_time", False, None,      LARGE, False),
    (AUTO,   "time_lag_over_time", False, None, LARGE, False),
    (AUTO,   "offsets",      False, None,       100,   False),
    (AUTO,   "offsets",      False, "local[2]", SMALL, False),
    (SPARK,  "offsets",      False, None,       SMALL, False),
    (LOCAL,  "lag_over_time", False, None,      100,   True),
]
# fmt: on


@pytest.mark.parametrize(("asked", "table", "is_past", "master", "local_bytes", "is_local"), CHOICES)
def test_the_size_chooses(
    logs: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    table: str,
    is_past: bool,
    master: str | None,
    local_bytes: int,
    is_local: bool,
) -> None:
    monkeypatch.setattr(choice, "local_bytes_max", lambda _: local_bytes)
    monkeypatch.setattr(choice, "_check_spark", lambda _: None)
    assert choose(asked, str(logs), table, is_past=is_past, master=master).is_local is is_local


def test_spark_is_chosen_where_its_cores_make_up_for_its_start() -> None:
    """Two cores gain nothing: 676 MB take 23 to 27 s of processor time, of which 11 for the start, and 6 in the process."""
    limits = [local_bytes_max(cores) for cores in (1, 2, 4, 8, 64)]
    assert limits[:2] == [math.inf, math.inf]
    assert limits == sorted(limits, reverse=True)
    assert 1_000_000_000 < limits[-1] < limits[2] < 5_000_000_000


def test_large_logs_without_java_are_a_sentence(logs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(choice, "local_bytes_max", lambda _: 100)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(
        ConfigError,
        match=r"MB of logs; on \d+ cores the local engine is quicker for up to .*; .*no Java.*--engine local",
    ):
        choose(AUTO, str(logs), "offsets")


@pytest.mark.parametrize(
    ("asked", "master", "sentence"),
    [("quick", None, "--engine quick: there are auto, local, spark"), (LOCAL, "local[2]", "--master is for Spark")],
)
def test_options_that_contradict_each_other(logs: Path, asked: str, master: str | None, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        choose(asked, str(logs), "offsets", master=master)


@pytest.mark.parametrize("arguments", [("offsets",), ("lag", "--time"), ("rebalances", "--cost"), ("report",)])
def test_no_spark_is_imported_and_no_java_needed(
    recorded: Callable[[str], Path], tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    command, *options = arguments
    told: dict[str, Any] = {**os.environ, "JAVA_HOME": str(tmp_path / "nowhere")}
    report = ("--report", str(tmp_path / "report.html")) if command == "report" else ()
    done = subprocess.run(
        [sys.executable, "-c", ALONE, command, str(recorded("tv1") / "logs"), *options, "-v", *report],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=told,
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert done.stderr.startswith("Engine: local (0.")
