"""
Measure the delay of appends by checkpoints:

    python -m kohort_lab.append_stalls DIRECTORY

The program runs turns of several appends over many partitions while checkpoints follow each other. It prints the durations of
turns with and without checkpoints, and exits with 1 if a turn took longer than the documented bound. The first append of each
partition, which makes a directory and two files, is listed separately and does not count.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from uuid import UUID

from kohort.model.ids import TopicPartition
from kohort.runtime.ready_queue import ReadyQueue
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.disk import DiskStore
from kohort.storage.log import LogConfig
from kohort.wire.batches import BatchRecord, build_batch

STALL_MS_MAX = 20.0
NEVER_MS = 1 << 40
SWITCH_INTERVAL_SECONDS = 0.0001
"""As in `kohort serve`."""


def measure(
    directory: Path, *, seconds: float, partitions: int, per_turn: int, size: int, interval_ms: int
) -> tuple[list[float], list[float]]:
    """The durations in milliseconds of each partition's first append, and of each turn with its appends and callbacks."""
    posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
    turn = ReadyQueue(lambda _: None)
    store = DiskStore(
        directory,
        defer=turn.defer,
        call_soon_threadsafe=posted.put,
        flush="commit",
        node_id=1,
        clock=SystemClock(),
        checkpoint_interval_ms=interval_ms,
    )
    logs = [store.open(TopicPartition("stall", number), UUID(int=1), LogConfig()) for number in range(partitions)]
    batch = build_batch([BatchRecord(None, b"x" * size)], timestamp_ms=1)
    first_ms, took_ms = [], []
    for log in logs:
        begun = time.perf_counter()
        log.append(batch, leader_epoch=0)
        first_ms.append((time.perf_counter() - begun) * 1000)
        turn.run()
    store.flush()
    ends_at = time.monotonic() + seconds
    number = 0
    while time.monotonic() < ends_at:
        begun = time.perf_counter()
        for _ in range(per_turn):
            logs[number % partitions].append(batch, leader_epoch=0)
            number += 1
        turn.run()
        took_ms.append((time.perf_counter() - begun) * 1000)
        _run_posted(posted, turn)
    store.close()
    return first_ms, took_ms


def _run_posted(posted: "SimpleQueue[Callable[[], None]]", turn: ReadyQueue) -> None:
    """Run the callbacks of the threads, and wait at most a millisecond for them, like an event loop."""
    try:
        action = posted.get(timeout=0.001)
        while True:
            action()
            turn.run()
            action = posted.get_nowait()
    except Empty:
        return


def _shares(took_ms: list[float]) -> str:
    ordered = sorted(took_ms)
    shares = {share: ordered[min(int(len(ordered) * share), len(ordered) - 1)] for share in (0.5, 0.99, 0.999)}
    told = "  ".join(f"p{100 * share:g} {one_ms:.2f} ms" for share, one_ms in shares.items())
    return f"{told}  max {ordered[-1]:.2f} ms"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    options.add_argument("directory", type=Path)
    options.add_argument("--seconds", type=float, default=5.0)
    options.add_argument("--partitions", type=int, default=50)
    options.add_argument("--appends", type=int, default=20, help="per turn")
    options.add_argument("--bytes", type=int, default=1000, help="per append")
    options.add_argument("--interval-ms", type=int, default=100, help="between checkpoints")
    asked = options.parse_args()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    worst = 0.0
    for name, interval_ms in (("without checkpoints", NEVER_MS), (f"every {asked.interval_ms} ms", asked.interval_ms)):
        first, took = measure(
            asked.directory / name.replace(" ", "-"),
            seconds=asked.seconds,
            partitions=asked.partitions,
            per_turn=asked.appends,
            size=asked.bytes,
            interval_ms=interval_ms,
        )
        worst = max(took)
        print(f"{name:20} {len(first):7} firsts {_shares(first)}")
        print(f"{name:20} {len(took):7} turns  {_shares(took)}")
    if worst > STALL_MS_MAX:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
