"""
`python -m bench.pipeline_commands`: commands of the pipeline as processes. Prints JSON on standard output.

| measure     | commands                                                                                       |
|-------------|------------------------------------------------------------------------------------------------|
| `questions` | `offsets`, `lag` and `rebalances` of a directory of `--mib` with 6,000 and with 60,000 keys    |
| `growth`    | `offsets --engine spark --out` and `run` of logs of some `--millions` of commits, 60,000 keys  |
| `engines`   | `offsets` and `rebalances` of such logs with each engine: what `auto` decides by               |

Each command has its wall time, the processor time of all its processes, and the maximum of the memory of all its processes
(sampled PSS; shared pages are counted once). For `questions` these are medians of `--rounds`, and memory is the resident set of
the one process, shared pages of libraries and of the log included, as the kernel counts it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import psutil

from bench.pipeline import BYTES_PER_RECORD, MIB, SAMPLE_S, is_starting
from bench.pipeline_logs import PARTITIONS, write_logs, write_topics

MEASURES: Final = ("questions", "growth", "engines")
KEYS: Final = (6_000, 60_000)
QUESTIONS: Final = ("offsets", "lag", "rebalances")

REASON_LINES: Final = 30
"""The end of a traceback of a Python worker, within one of the JVM's."""

KOHORT: Final = (sys.executable, "-m", "kohort.cli.main", "pipeline")

Figures = dict[str, Any]


def questions(mib: int, rounds: int, directory: str | None) -> Figures:
    """Ask the quick questions of directories with few and with many keys."""
    told: Figures = {}
    for keys in KEYS:
        with tempfile.TemporaryDirectory(prefix="kohort-bench-", dir=directory) as name:
            write_logs(Path(name), size_bytes=mib * MIB, groups=keys // PARTITIONS)
            write_topics(Path(name))
            told[f"{keys} keys"] = {word: asked([word, name], rounds) for word in QUESTIONS}
    return told


def asked(arguments: list[str], rounds: int) -> Figures:
    """Run a command that is one process, and tell the medians. The first run, which fills the page cache, does not count."""
    found = [once(arguments) for _ in range(rounds + 1)][1:]
    return {name: round(statistics.median(one[name] for one in found), 2) for name in found[0]}


def once(arguments: list[str]) -> Figures:
    begun = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        process = started(arguments, KOHORT, errors)
        _, status, used = os.wait4(process.pid, 0)
        if code := os.waitstatus_to_exitcode(status):
            end_with(code, arguments, KOHORT, errors)
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "cpu_s": used.ru_utime + used.ru_stime, "memory_mib": used.ru_maxrss / 1024}


def growth(millions: list[float], directory: str | None) -> list[Figures]:
    """Run the commands for large logs."""
    told = []
    for size in millions:
        with tempfile.TemporaryDirectory(prefix="kohort-bench-", dir=directory) as name:
            logs = Path(name) / "logs"
            records = write_logs(logs, size_bytes=round(size * 1e6 * BYTES_PER_RECORD))
            found: Figures = {"records": records}
            for word, options in (("offsets", ["--engine", "spark"]), ("run", [])):
                print(f"{word} of {records:,} records", file=sys.stderr, flush=True)
                found[word] = watched([word, str(logs), "--out", str(Path(name) / word), *options])
            told.append(found)
    return told


def engines(millions: list[float], directory: str | None) -> list[Figures]:
    """Run commands with each engine; `pipeline.engines.choice` has the times for a start and a megabyte."""
    told = []
    for size in millions:
        with tempfile.TemporaryDirectory(prefix="kohort-bench-", dir=directory) as name:
            records = write_logs(Path(name), size_bytes=round(size * 1e6 * BYTES_PER_RECORD))
            logs = sum(file.stat().st_size for file in Path(name).rglob("*.log"))
            found: Figures = {"records": records, "mb": round(logs / 1e6, 1), "cores": os.cpu_count()}
            for word in ("offsets", "rebalances"):
                found[word] = {one: watched([word, name, "--engine", one]) for one in ("local", "spark")}
            told.append(found)
    return told


def watched(arguments: list[str], command: Sequence[str] = KOHORT) -> Figures:
    """Run a command, and sample the memory and the processor time of its processes."""
    begun, most, used = time.perf_counter(), 0, dict[tuple[int, float], float]()
    with tempfile.TemporaryFile() as errors:
        process = started(arguments, command, errors)
        root = psutil.Process(process.pid)
        while process.poll() is None:
            total = 0
            for one in family(root):
                with suppress(psutil.Error), one.oneshot():
                    if is_starting(one):
                        continue
                    total += one.memory_full_info().pss
                    used[one.pid, one.create_time()] = sum(one.cpu_times()[:2])
            most = max(most, total)
            time.sleep(SAMPLE_S)
        if process.returncode:
            end_with(process.returncode, arguments, command, errors)
    return {
        "seconds": round(time.perf_counter() - begun, 1),
        "cpu_s": round(sum(used.values()), 1),
        "memory_mib": most // MIB,
    }


def family(root: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [root, *root.children(recursive=True)]
    return []


def started(arguments: list[str], command: Sequence[str], errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=errors)


def end_with(code: int, arguments: list[str], command: Sequence[str], errors: IO[bytes]) -> NoReturn:
    """End with the last lines that a failed command wrote."""
    errors.seek(0)
    said = errors.read().decode(errors="replace").splitlines()[-REASON_LINES:]
    sys.exit("\n".join((*said, f"{' '.join((*command[2:], *arguments))} ended with exit code {code}")))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pipeline_commands", description="Costs of pipeline commands."
    )
    parser.add_argument("--only", metavar="NAMES", default="questions", help=f"of {', '.join(MEASURES)}")
    parser.add_argument("--mib", type=int, default=100, help="size of the logs of questions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--millions", default="1,10", help="commits of growth, in millions (100 takes 7 GB and minutes)"
    )
    parser.add_argument("--directory", metavar="DIR", help="where the logs are written for a while")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := sorted(set(names) - set(MEASURES)):
        parser.error(f"there is no measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    figures: Figures = {}
    if "questions" in names:
        figures["questions"] = questions(arguments.mib, arguments.rounds, arguments.directory)
    if "growth" in names:
        figures["growth"] = growth([float(word) for word in arguments.millions.split(",")], arguments.directory)
    if "engines" in names:
        figures["engines"] = engines([float(word) for word in arguments.millions.split(",")], arguments.directory)
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
