"""
The internal topics that Apache Kafka 4.4.0 left behind, as its own classes read them, and what it said of its state.

The archives are those of the pipeline (`tests/data/pipeline/README.md`). `main` is a broker's whole life, `expiry` has expired
offsets, groups and transactional ids under transaction version 1, `unclean` was killed under load.
"""

import json
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

RUNS = ("main-4.4.0", "expiry-4.4.0", "unclean-4.4.0")
TOPICS = ("__consumer_offsets", "__transaction_state", "__share_group_state")
ARCHIVES = Path(__file__).parents[1] / "data" / "pipeline"

Row = dict[str, Any]


@cache
def _texts(run: str) -> dict[str, str]:
    with tarfile.open(ARCHIVES / f"{run}.tar.xz") as archive:
        files = [member for member in archive if member.name.endswith((".jsonl", ".json"))]
        return {member.name: archive.extractfile(member).read().decode() for member in files}  # type: ignore[union-attr]


@cache
def batches(run: str, topic: str) -> dict[int, list[Row]]:
    """The batches of each partition of an internal topic, with their records."""
    found: dict[int, list[Row]] = {}
    for name, text in _texts(run).items():
        place, _, partition = Path(name).stem.rpartition("-")
        if place == topic:
            lines = [json.loads(line) for line in text.splitlines()]
            found[int(partition)] = [batch for batch in lines if "records" in batch]
    return found


@cache
def broker(run: str) -> Row:
    """What the broker said just before it stopped; of `unclean` what the next one said after recovery."""
    summary = json.loads(_texts(run)["summary.json"])
    found: Row = summary.get("broker") or summary["broker_after_recovery"]
    return found


def unpack(run: str, to: Path) -> Path:
    """The segments of the internal topics, a folder a partition."""
    with tarfile.open(ARCHIVES / f"{run}.tar.xz") as archive:
        ours = [member for member in archive if member.name.startswith("logs/__") and member.name.endswith(".log")]
        archive.extractall(to, members=ours, filter="data")
    return to / "logs"
