"""Notes on standard error while logs are read: a progress bar, and damaged parts that are skipped."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from kohort.cli.output import echo

UPDATE_INTERVAL_S = 0.1


class ProgressSource(Protocol):
    """An operation that reports its progress."""

    planned_bytes: int

    def progress(self) -> Any:
        """Return `bytes_read` and `rows` so far."""
        ...


@contextmanager
def shown_progress(stderr: TextIO, source: ProgressSource) -> Iterator[None]:
    """Show progress and the remaining time until the block ends."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[rows]:,} rows"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(file=stderr)) as shown:
        task = shown.add_task("read", rows=0)
        done = threading.Event()

        def update() -> None:
            now = source.progress()
            shown.update(
                task, total=max(source.planned_bytes, now.bytes_read, 1), completed=now.bytes_read, rows=now.rows
            )

        def watch() -> None:
            while not done.wait(UPDATE_INTERVAL_S):
                update()

        watcher = threading.Thread(target=watch, name="pipeline-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            update()


def print_damage(row: Mapping[str, Any]) -> None:
    """Print a row of the table `damage`: a part of a log that could not be read."""
    where = f"{row['log_topic']}-{row['log_partition']}/{row['segment']}, byte {row['position']}"
    echo(f"Skipped: {where}: {row['size_bytes']} bytes, {row['problem']}", err=True)
