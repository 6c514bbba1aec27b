"""Bytes and rows that Spark's tasks have read, drawn on a terminal while they read; one line in the end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

EVERY_S = 0.1


class Progress(Protocol):
    """What can tell how far it has come."""

    planned_bytes: int

    def progress(self) -> Any:
        """`bytes_read` and `rows` so far."""
        ...


@contextmanager
def shown_progress(console: Any, told: Progress) -> Iterator[None]:
    """Progress with the time that is left, until the block ends."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn(), TextColumn("{task.fields[rows]:,} rows"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console) as shown:
        task = shown.add_task("read", rows=0)
        done = threading.Event()

        def look() -> None:
            now = told.progress()
            shown.update(
                task, total=max(told.planned_bytes, now.bytes_read, 1), completed=now.bytes_read, rows=now.rows
            )

        def watch() -> None:
            while not done.wait(EVERY_S):
                look()

        watcher = threading.Thread(target=watch, name="pipeline-progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()
            look()
