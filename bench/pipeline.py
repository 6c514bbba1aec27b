"""
`python -m bench.pipeline`: how fast the pipeline reads, on this machine. JSON on standard output, progress on standard error.

| measure        | what                                                                                                   |
|----------------|--------------------------------------------------------------------------------------------------------|
| `decoder`      | segments to Arrow in one thread, checksums compared, the columns that the table of commits needs       |
| `source`       | `spark.read.format("kohort")` to the `noop` sink, the same columns                                     |
| `latest`       | latest offsets out of the raw log                                                                      |
| `bronze`       | all columns to Parquet, as `kohort pipeline run` keeps them                                            |
| `growth`       | seconds per million records, latest offsets, from small logs to large ones                             |
| `executors`    | the same with one executor of one core and with two, processes of their own                            |

Each figure is the best of `--rounds`, for the machine does other things too. Memory is the greatest of what the driver, its
JVM and the Python workers hold together, sampled; pages that several of them map are counted once.
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
from contextlib import contextmanager
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
COMMIT_KINDS: Final = (schemas.OFFSET_COMMIT, schemas.MARKER, schemas.DAMAGE)
"""What the table of commits reads; other records are a hundredth of these logs, and are read one at a time."""
DECODER_BYTES: Final = 100 << 20
BYTES_PER_RECORD: Final = 78
SAMPLE_S: Final = 0.2
MIB: Final = 1 << 20

Figures = dict[str, Any]


def best(rounds: int, work: Callable[[], Any]) -> float:
    """The least seconds."""
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
    """A session, and logs to read with it."""

    def __init__(self, spark: Any, logs: Path, log_bytes: int, rounds: int) -> None:
        self.spark = spark
        self.logs = logs
        self.log_bytes = log_bytes
        self.rounds = rounds

    def timed(self, work: Callable[[], Any]) -> Figures:
        # The first time warms up, and is where memory is looked at: looking takes a tenth of a core itself.
        with peak_memory() as memory:
            work()
        seconds = best(self.rounds, work)
        told = {"seconds": round(seconds, 2), "mb_per_s": round(self.log_bytes / seconds / 1e6)}
        return {**told, "memory_mib": memory[0] // MIB}

    def source(self) -> Figures:
        frame = (
            self.spark.read.format("kohort")
            .option("columns", COLUMNS)
            .option("kinds", ",".join(COMMIT_KINDS))
            .load(str(self.logs))
        )
        return self.timed(lambda: frame.write.format("noop").mode("overwrite").save())

    def latest(self) -> Figures:
        return self.timed(lambda: latest(self.spark, self.logs).count())

    def bronze(self) -> Figures:
        from kohort.pipeline.runs.bronze import Bronze
        from kohort.pipeline.runs.run import Source

        source, files = Source(str(self.logs)), Bronze(self.logs.parent / "out")
        logs = source.logs()
        tasks = logs.tasks({}, {place: end for place, (_, end) in logs.bounds().items()})
        return self.timed(lambda: files.write_tasks(self.spark, source.reading(), tasks, "1"))


def latest(spark: Any, logs: Path) -> Any:
    from kohort.pipeline.jobs.reading import Reading
    from kohort.pipeline.jobs.tables import Tables

    spark.catalog.clearCache()
    return Tables(Reading(spark, logs, is_latest_only=True)).offsets


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The greatest sum of what this process and all that it started hold (PSS), in bytes."""
    found, done, here = [0], threading.Event(), psutil.Process()

    def watch() -> None:
        while not done.wait(SAMPLE_S):
            total = 0
            for process in (here, *here.children(recursive=True)):
                try:
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


@contextmanager
def logs_of(size_bytes: int) -> Iterator[tuple[Path, int]]:
    """A directory with logs of about this size, and how many records they hold."""
    with tempfile.TemporaryDirectory(prefix="kohort-bench-") as name:
        directory = Path(name) / "logs"
        yield directory, write_logs(directory, size_bytes=size_bytes)


def with_spark(master: str, size_bytes: int, rounds: int, names: tuple[str, ...]) -> Figures:
    from kohort.pipeline.session import session

    with logs_of(size_bytes) as (logs, records), session(master, is_short=False) as spark:
        log_bytes = sum(path.stat().st_size for path in logs.rglob("*.log"))
        bench = Spark(spark, logs, log_bytes, rounds)
        figures: Figures = {"log_bytes": log_bytes, "records": records}
        for name in names:
            tell(f"{name} on {master}, {records:,} records")
            figures[name] = getattr(bench, name)()
            shutil.rmtree(logs.parent / "out", ignore_errors=True)
        return figures


def growth(millions: list[int], rounds: int) -> list[Figures]:
    told = []
    for size in millions:
        found = with_spark("local[2]", size * 1_000_000 * BYTES_PER_RECORD, rounds, ("latest",))
        seconds, records = found["latest"]["seconds"], found["records"]
        cost = round(seconds / records * 1e6, 3)
        told.append({"records": records, "seconds_per_million": cost, "memory_mib": found["latest"]["memory_mib"]})
    return told


def executors(size_bytes: int, rounds: int) -> Figures:
    """`local-cluster` needs Spark's own directory, which the Python package is."""
    import pyspark

    os.environ.setdefault("SPARK_HOME", str(Path(pyspark.__file__).parent))
    return {
        str(count): with_spark(f"local-cluster[{count},1,1024]", size_bytes, rounds, ("source",))["source"]
        for count in (1, 2)
    }


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description="How fast the pipeline reads.")
    parser.add_argument("--only", metavar="NAMES", default=",".join(MEASURES), help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--mib", type=int, default=500, help="size of the logs that Spark reads")
    parser.add_argument("--millions", default="1,3,10", help="records of the curve, in millions (100 takes minutes)")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    asked = parse()
    names = asked.only.split(",")
    if unknown := sorted(set(names) - set(MEASURES)):
        sys.exit(f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    figures: Figures = {}
    if "decoder" in names:
        figures["decoder"] = decoder(asked.rounds)
    if chosen := tuple(name for name in ("source", "latest", "bronze") if name in names):
        figures["spark"] = with_spark("local[2]", asked.mib * MIB, asked.rounds, chosen)
    if "growth" in names:
        figures["growth"] = growth([int(word) for word in asked.millions.split(",")], asked.rounds)
    if "executors" in names:
        figures["executors"] = executors(asked.mib * MIB, asked.rounds)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
