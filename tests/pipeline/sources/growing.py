"""A data directory that grows, and a process with a stream over it."""

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.pipeline.logbytes import TIMESTAMP_MS, batch, marker, offset_key, offset_value

TOPIC = "__consumer_offsets"


class GrowingLog:
    """The segments of one partition; `append` writes batches, `roll` begins a new segment."""

    def __init__(self, directory: Path, topic: str = TOPIC, partition: int = 0) -> None:
        self.directory = directory / f"{topic}-{partition}"
        self.directory.mkdir(parents=True, exist_ok=True)
        self.next_offset = 0
        self.roll()

    def roll(self) -> None:
        self.file = self.directory / f"{self.next_offset:020}.log"
        self.file.touch()

    def append(self, raw: bytes) -> None:
        with self.file.open("ab") as file:
            file.write(raw)

    def commits(self, count: int, *, group: str = "g", producer_id: int = -1, per_batch: int = 3) -> None:
        """Batches of commits; offsets count up with the log."""
        left = count
        while left > 0:
            here = range(self.next_offset, self.next_offset + min(per_batch, left))
            pairs = [(offset_key(f"{group}{at % 7}", "orders", at % 3), offset_value(at)) for at in here]
            attributes = 0 if producer_id < 0 else 0x10
            at_ms = TIMESTAMP_MS + self.next_offset
            raw = batch(self.next_offset, pairs, producer_id=producer_id, attributes=attributes, timestamp_ms=at_ms)
            self.append(raw)
            self.next_offset += len(here)
            left -= len(here)

    def marker(self, producer_id: int, *, committed: bool) -> None:
        self.append(marker(self.next_offset, producer_id, committed=committed))
        self.next_offset += 1

    def torn(self) -> bytes:
        """A batch of which only the begin is written; returns the rest of it."""
        whole = batch(self.next_offset, [(offset_key("torn", "orders", 0), offset_value(1))] * 4)
        self.append(whole[:80])
        self.next_offset += 4
        return whole[80:]


def damaged(raw: bytes) -> bytes:
    """A batch whose checksum does not match."""
    spoilt = bytearray(raw)
    struct.pack_into(">I", spoilt, 17, 0xDEADBEEF)
    return bytes(spoilt)


def written_rows(directory: Path) -> list[dict[str, Any]]:
    """The rows of a directory of JSON lines files, in log order."""
    rows = [json.loads(line) for path in sorted(directory.glob("**/*.json")) for line in path.read_text().splitlines()]
    return sorted(rows, key=lambda row: (row["log_partition"], row["log_offset"]))


def start_process(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Python with some code, in a session of its own so that its JVM and workers can be killed with it."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
