"""Checkpoints as Spark writes them, written by hand, and the logs of the topics that their queries read."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.pipeline import logbytes

BEGAN_MS = 1_795_252_800_000
QUERY_ID = "8b7ad2f1-6f7a-4b0e-9d3c-1c0e5b1f2a3d"

Offsets = Mapping[str, Mapping[int, int]]


def kafka(offsets: Offsets) -> str:
    """Offsets of a Kafka source."""
    return json.dumps({topic: {str(one): at for one, at in parts.items()} for topic, parts in offsets.items()})


def plan(*sources: str | Offsets | None, at_ms: int = BEGAN_MS, version: int = 1, watermark_ms: int = 0) -> str:
    """`offsets/N`; a source is Kafka's offsets, or text, or None where it has no offset yet."""
    about: dict[str, Any] = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": at_ms}
    about["conf"] = {"spark.sql.shuffle.partitions": "200"}
    texts = ["-" if one is None else one if isinstance(one, str) else kafka(one) for one in sources]
    if version > 1:
        texts = [f"{number}:{text}" for number, text in enumerate(texts)]
    return "\n".join((f"v{version}", json.dumps(about), *texts))


class Checkpoint:
    """A checkpoint that a test writes."""

    def __init__(self, path: Path, *, query_id: str | None = QUERY_ID) -> None:
        self.path = path
        for name in ("offsets", "commits", "sources"):
            (path / name).mkdir(parents=True)
        if query_id is not None:
            (path / "metadata").write_text(json.dumps({"id": query_id}))

    def start(self, offsets: Offsets, source: int = 0) -> None:
        """Where a source begins."""
        self.write(f"sources/{source}/0", "\0v1\n" + kafka(offsets), BEGAN_MS)

    def batch(
        self, number: int, *sources: str | Offsets | None, at_ms: int, finished_ms: int | None, version: int = 1
    ) -> None:
        """A batch; one that has not finished has no commit."""
        self.write(f"offsets/{number}", plan(*sources, at_ms=at_ms, version=version), at_ms)
        if finished_ms is not None:
            self.write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":0}', finished_ms)

    def write(self, name: str, text: str | bytes, at_ms: int) -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        os.utime(path, ns=(at_ms * 1_000_000, at_ms * 1_000_000))


def write_topic(
    logs: Path, topic: str, ends: Sequence[int], *, at_ms: int = BEGAN_MS, every_ms: int = 1_000, start: int = 0
) -> None:
    """The log of a topic: a batch of one record each `every_ms`, up to an end offset for each partition."""
    for partition, end in enumerate(ends):
        directory = logs / f"{topic}-{partition}"
        directory.mkdir(parents=True)
        batches = (
            logbytes.batch(offset, [(None, b"v")], timestamp_ms=at_ms + offset * every_ms)
            for offset in range(start, end)
        )
        (directory / f"{start:020}.log").write_bytes(b"".join(batches))
