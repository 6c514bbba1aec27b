"""
`python -m bench.pipeline`: read rates of the pipeline. Prints JSON on standard output, progress on standard error.

| measure        | what                                                                                                   |
|----------------|--------------------------------------------------------------------------------------------------------|
| `decoder`      | segments to Arrow in one thread, checksums compared, the columns that the table of commits needs       |
| `source`       | `spark.read.format("kohort")` to the `noop` sink: offset commits with these columns                   |
| `latest`       | latest offsets out of the raw log                                                                      |
| `bronze`       | all columns to Parquet, as `kohort pipeline run` keeps them                                            |
| `growth`       | latest offsets, from small logs to large ones: seconds per million records, and memory                 |
| `executors`    | `source` with one executor of one core and with two, processes of their own, and how much quicker two are |

`source`, `latest` and `bronze` run on `--master`: `local[1]` beside `local[2]` tells how a job scales. They also tell the
processor time of all processes for each record, the least of all rounds. Each other figure is the best of `--rounds`. Memory is
the sampled maximum of driver, JVM and Python workers together; shared pages are counted once. `--curve` prints `growth` up to
100 million records as a table, which takes some minutes and 7 GB in `--directory`.

Executors are measured unbound, and bound to a core each. A core of an executor is a slot for one task, and a task runs in two
processes: a Python worker decodes while the JVM takes its rows. So an unbound executor with one core uses 1.6 cores, and
a second one gets only 0.4 of a machine with two. Bound executors, as in containers of a cluster, use one core each.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil

from bench.pipeline_logs import VERSIONS, segment, write_logs
from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment

MEASURES: Final = ("decoder", "source", "latest", "bronze", "growth", "executors")
COLUMNS: Final = (
    "kind,log_partition,log_offset,timestamp_ms,producer_id,transactional,group,tombstone,topic,partition,offset,leader_epoch,"
    "metadata,commit_timestamp_ms"
)
OF_ONE_KIND: Final = COLUMNS.removeprefix("kind,")
COMMIT_KINDS: Final = (schemas.OFFSET_COMMIT, schemas.MARKER, schemas.DAMAGE)
"""Columns of the table of commits. Other records are one percent of these logs, and are read one by one."""
DECODER_BYTES: Final = 100 << 20
BYTES_PER_RECORD: Final = 67.6
CURVE: Final = "1,3,10,30,100"
LONG_MILLIONS: Final = 30
"""From this size on, one round is enough."""
SAMPLE_S: Final = 0.2
WARM_ROUNDS: Final = 3
ROUNDS_MIN: Final = 3
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
MIB: Final = 1 << 20

Figures = dict[str, Any]


def best(rounds: int, work: Callable[[], Any]) -> float:
    """Return the shortest time in seconds."""
    found = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


def decoder(rounds: int) -> Figures:
    figures: Figures = {}
    schema = schemas.subset(COLUMNS.split(","))
    for version in VERSIONS:
        raw, records = segment(version, DECODER_BYTES, 0, seed=1)
        place = Segment("__consumer_offsets", 0, 0, "/nowhere", len(raw))

        def work(raw: bytes = raw, place: Segment = place) -> None:
            for _ in Decoder(kinds=COMMIT_KINDS, schema=schema).decode(raw, place):
                pass

        seconds = best(rounds, work)
        figures[version] = {"records_per_s": round(records / seconds), "mb_per_s": round(len(raw) / seconds / 1e6)}
    return figures


class Spark:
    """A Spark session and logs to read."""

    def __init__(self, spark: Any, logs: Path, log_bytes: int, rounds: int, records: int = 0) -> None:
        self.spark = spark
        self.logs = logs
        self.log_bytes = log_bytes
        self.records = records
        self.rounds = rounds

    def timed(self, work: Callable[[], Any]) -> Figures:
        # The first run warms up and samples memory; sampling takes a tenth of a core.
        with peak_memory() as memory:
            work()
        used: list[float] = []

        def counted() -> None:
            begun = processor_s()
            work()
            used.append(processor_s() - begun)

        seconds = best(self.rounds, counted)
        told = {"seconds": round(seconds, 2), "mb_per_s": round(self.log_bytes / seconds / 1e6)}
        if self.records:
            told["cpu_us_per_record"] = round(min(used) / self.records * 1e6, 2)
        return {**told, "memory_mib": memory[0] // MIB}

    def source(self) -> Figures:
        return self.timed(self.read_source)

    def read_source(self) -> None:
        frame = (
            self.spark.read.format("kohort")
            .option("columns", OF_ONE_KIND)
            .option("kinds", schemas.OFFSET_COMMIT)
            .load(str(self.logs))
        )
        frame.write.format("noop").mode("overwrite").save()

    def latest(self) -> Figures:
        return self.timed(lambda: latest(self.spark, self.logs).count())

    def bronze(self) -> Figures:
        from kohort.pipeline.runs.bronze import Bronze
        from kohort.pipeline.runs.run import Source

        source, files = Source(str(self.logs)), Bronze(self.logs.parent / "out")
        logs = source.logs()
        tasks = logs.tasks({}, {place: end for place, (_, end) in logs.state().bounds.items()})
        return self.timed(lambda: files.write_tasks(self.spark, source.reading(), tasks, "1", {}))


def latest(spark: Any, logs: Path) -> Any:
    from kohort.pipeline.jobs.reading import Reading
    from kohort.pipeline.jobs.tables import Tables

    spark.catalog.clearCache()
    return Tables(Reading(spark, logs, is_latest_only=True)).offsets


def processor_s() -> float:
    """Return the processor time of this process and its descendants, those that ended included, in seconds."""
    total, here = 0.0, psutil.Process()
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """Sample the memory of this process and its descendants (PSS), and keep the maximum in bytes."""
    found, done, here = [0], threading.Event(), psutil.Process()

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            total = 0
            for process in (here, *here.children(recursive=True)):
                try:
                    if not is_starting(process):
                        total += process.memory_full_info().pss
                except psutil.Error:
                    continue
            found[0] = max(found[0], total)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        done.set()
        watcher.join()


def is_starting(process: psutil.Process) -> bool:
    """Tell whether this is a fork of the JVM before its exec. It shares the memory of the JVM, which is counted once."""
    parent = process.parent()
    return parent is not None and process.name() != "java" and process.exe() == parent.exe() and "java" in parent.name()


@contextmanager
def logs_of(size_bytes: int, directory: str | None = None) -> Iterator[tuple[Path, int]]:
    """Write logs of about this size. Yields the directory and the number of records."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-", dir=directory) as name:
        logs = Path(name) / "logs"
        yield logs, write_logs(logs, size_bytes=size_bytes)


def with_spark(master: str, size_bytes: int, rounds: int, names: tuple[str, ...]) -> Figures:
    from kohort.pipeline.spark_session import session

    with logs_of(size_bytes) as (logs, records), session(master, is_short=False) as spark:
        log_bytes = sum(path.stat().st_size for path in logs.rglob("*.log"))
        bench = Spark(spark, logs, log_bytes, rounds, records)
        figures: Figures = {"log_bytes": log_bytes, "records": records}
        for name in names:
            tell(f"{name} on {master}, {records:,} records")
            figures[name] = getattr(bench, name)()
            shutil.rmtree(logs.parent / "out", ignore_errors=True)
        return figures


def growth(millions: list[int], rounds: int, directory: str | None) -> list[Figures]:
    """Measure several sizes in one session, so that the JIT compiler affects all alike. The first size is run twice."""
    from kohort.pipeline.spark_session import session

    told = []
    with session("local[2]", is_short=False) as spark:
        for at, size in enumerate([millions[0], *millions]):
            with logs_of(round(size * 1e6 * BYTES_PER_RECORD), directory) as (logs, records):
                log_bytes = sum(path.stat().st_size for path in logs.rglob("*.log"))
                tell(f"latest offsets of {records:,} records")
                found = Spark(spark, logs, log_bytes, 1 if size >= LONG_MILLIONS else rounds, records).latest()
            cost = round(found["seconds"] / records * 1e6, 3)
            if at:
                told.append({"records": records, **found, "seconds_per_million": cost})
    return told


def curve(told: list[Figures]) -> str:
    """Format `growth` as a table."""
    lines = ["     records  seconds  s/million   MB/s  memory MiB"]
    for one in told:
        cost = one["seconds_per_million"]
        figures = f"{one['seconds']:7.2f}  {cost:9.3f}  {one['mb_per_s']:5}  {one['memory_mib']:10}"
        lines.append(f"{one['records']:12,}  {figures}")
    return "\n".join(lines)


def executors(size_bytes: int, rounds: int) -> Figures:
    """Set SPARK_HOME, which `local-cluster` needs, to the directory of the Python package."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    with logs_of(size_bytes) as (logs, _):
        log_bytes = sum(path.stat().st_size for path in logs.rglob("*.log"))
        found = {str(count): of_executors(count, logs, log_bytes, max(rounds, ROUNDS_MIN)) for count in (1, 2)}
    quicker = {way: round(found["1"][way]["seconds"] / found["2"][way]["seconds"], 2) for way in found["1"]}
    return {**found, "times_as_quick": quicker}


def of_executors(count: int, logs: Path, log_bytes: int, rounds: int) -> Figures:
    from kohort.pipeline.spark_session import session

    told: Figures = {}
    with session(f"local-cluster[{count},1,1024]", is_short=False) as spark:
        work = Spark(spark, logs, log_bytes, rounds).read_source
        # Each executor reads a part of the log, and has its own JIT compiler to warm up.
        for _ in range(WARM_ROUNDS * count):
            work()
        for way in ("unbound", "bound") if can_bind(count) else ("unbound",):
            tell(f"source with {count} executors of one core, {way}")
            if way == "bound":
                bind_executors(count)
            seconds = best(rounds, work)
            told[way] = {"seconds": round(seconds, 2), "mb_per_s": round(log_bytes / seconds / 1e6)}
    return told


def can_bind(count: int) -> bool:
    return hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) >= count


def bind_executors(count: int) -> None:
    """Bind all threads of an executor and its workers to one core. Later threads inherit the binding."""
    below = psutil.Process().children(recursive=True)
    found = [one for one in below if one.status() != psutil.STATUS_ZOMBIE and EXECUTOR in one.cmdline()]
    assert len(found) == count, f"{len(found)} executors run, not {count}"
    for core, executor in zip(sorted(os.sched_getaffinity(0)), found, strict=False):
        for process in (executor, *executor.children(recursive=True)):
            for thread in process.threads():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(thread.id, {core})


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="How fast the pipeline reads.")
    parser.add_argument("--only", metavar="NAMES", default=",".join(MEASURES), help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--mib", type=int, default=500, help="size of the logs that Spark reads")
    parser.add_argument("--millions", default="1,3,10", help="records of the curve, in millions (100 takes minutes)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--master", default="local[2]", help="Spark master of source, latest and bronze")
    parser.add_argument("--curve", action="store_true", help=f"growth alone, at {CURVE} million records, as a table")
    parser.add_argument("--directory", metavar="DIR", help="where the logs of the curve are written for a while")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    if arguments.curve:
        print(curve(growth([int(word) for word in CURVE.split(",")], arguments.rounds, arguments.directory)))
        return
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(MEASURES)):
        sys.exit(f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    figures: Figures = {}
    if "decoder" in names:
        figures["decoder"] = decoder(arguments.rounds)
    if chosen := tuple(name for name in ("source", "latest", "bronze") if name in names):
        figures["spark"] = with_spark(arguments.master, arguments.mib * MIB, arguments.rounds, chosen)
    if "growth" in names:
        figures["growth"] = growth(
            [int(word) for word in arguments.millions.split(",")], arguments.rounds, arguments.directory
        )
    if "executors" in names:
        figures["executors"] = executors(arguments.mib * MIB, arguments.rounds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
