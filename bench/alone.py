"""
Measures without a rival: Kohort's runtime, log and pipeline, each in its own process.

Some have a simple peer for comparison (a dict, a heap), shown in the column of the machine.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from bench.failures import FAILURES, reason
from bench.figures import Figure
from bench.reporting.report import OURS

TIMEOUT_SECONDS: Final = 300.0
STORAGE_MEGABYTES: Final = 256
PIPELINE_MEGABYTES: Final = 400
EXECUTORS_MEGABYTES: Final = 200


def alone(on_step: Callable[[str], None]) -> list[Figure]:
    """Run all of them. A failed part has a reason instead of figures."""
    found: list[Figure] = []
    for name, arguments, read in _PARTS:
        on_step(f"{name}, without rivals")
        try:
            output = subprocess.run(
                [sys.executable, "-m", *arguments],
                check=True,
                capture_output=True,
                timeout=TIMEOUT_SECONDS,
            )
            found += read(json.loads(output.stdout))
        except FAILURES as error:
            found.append(Figure(name, "", OURS, None, reason(error)))
    return found


def _runtime(output: list[dict[str, Any]]) -> Iterator[Figure]:
    peers = {one["peer"] for one in output}
    for one in output:
        if one["name"] in peers:
            continue
        name = f"runtime: {one['name']}"
        if one["name"].startswith("longest step"):
            goal = one["goal_per_second"]
            yield Figure(name, "ms", OURS, 1000 / one["per_second"], goal=1000 / goal if goal else 0.0)
            continue
        yield Figure(name, "/s", OURS, one["per_second"], goal=one["goal_per_second"] or 0.0)
        if one["peer"]:
            yield Figure(name, "/s", "", one["peer_per_second"])


def _assignors(output: list[dict[str, Any]]) -> Iterator[Figure]:
    for one in output:
        yield Figure(f"assignor: {one['name']}", "ms", OURS, one["milliseconds"], goal=one["goal_ms"])
    longest = max(one["longest_step_ms"] for one in output)
    yield Figure("assignor: the longest of all steps", "ms", OURS, longest, goal=20.0)


def _storage(output: dict[str, Any]) -> Iterator[Figure]:
    size = f"{output['megabytes']} MiB, 10 % live"
    for record_bytes, one in output["compaction"].items():
        name = f"log: compaction of {size}, records of {record_bytes} bytes"
        yield Figure(name, "s", OURS, one["elapsed_s"], goal=20.0 * output["megabytes"] / 1024)
        yield Figure(f"{name}: memory", "MB", OURS, one["memory_bytes"] / 1e6, goal=268.0)
    yield Figure("log: recovery", "MB/s", OURS, output["recovery_mb_per_s"], goal=500.0)
    partitions = f"log: start on {output['start_partitions']:,} partitions after a clean stop"
    yield Figure(partitions, "s", OURS, output["start_s"], goal=1.0)


def _pipeline(output: dict[str, Any]) -> Iterator[Figure]:
    for version, one in output["decoder"].items():
        goal = 3_500_000.0 if version == "v3" else 3_000_000.0
        yield Figure(
            f"pipeline: offset commits decoded, {version}, one core", "/s", OURS, one["records_per_s"], goal=goal
        )
    for name, goal in (("source", 190.0), ("latest", 260.0), ("bronze", 90.0)):
        one = output["spark"][name]
        yield Figure(f"pipeline: Spark, {_SPARK[name]}", "MB/s", OURS, one["mb_per_s"], goal=goal)
        yield Figure(f"pipeline: Spark, {_SPARK[name]}: memory", "MB", OURS, one["memory_mib"] * 1.048576, goal=2_000.0)


def _scale(output: dict[str, Any]) -> Iterator[Figure]:
    for one in output["growth"]:
        name = f"pipeline: latest offsets of {one['records'] / 1e6:,.0f} million records"
        yield Figure(f"{name}, each million", "s", OURS, one["seconds_per_million"])
        yield Figure(f"{name}: memory", "MB", OURS, one["memory_mib"] * 1.048576, goal=2_000.0)
    for way, ratio in output["executors"]["times_as_quick"].items():
        name = f"pipeline: two executors of one core instead of one, {_BOUND[way]}: speed-up"
        yield Figure(name, "", OURS, ratio, goal=1.0)


_BOUND: Final = {"unbound": "unbound", "bound": "each bound to a core"}
_SPARK: Final = {"source": "source to noop", "latest": "latest offsets", "bronze": "everything to Parquet"}
_PARTS: Final[tuple[tuple[str, list[str], Callable[[Any], Iterator[Figure]]], ...]] = (
    ("runtime", ["bench.runtime", "--json"], _runtime),
    ("assignors", ["bench.assignors", "--json"], _assignors),
    ("log", ["bench.storage", "--json", "--megabytes", str(STORAGE_MEGABYTES)], _storage),
    (
        "pipeline",
        ["bench.pipeline", "--only", "decoder,source,latest,bronze", "--mib", str(PIPELINE_MEGABYTES), "--rounds", "2"],
        _pipeline,
    ),
    (
        "pipeline at scale",
        ["bench.pipeline", "--only", "growth,executors", "--mib", str(EXECUTORS_MEGABYTES), "--rounds", "1"],
        _scale,
    ),
)
