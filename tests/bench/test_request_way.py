"""
The way of a request through the code does not become longer: calls, files and changes of rooms (`tools/request_way.py`).

A change that needs more says so by raising a number here; one that needs less lowers it.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.conftest import watches_calls

ROOT = Path(__file__).parents[2]

# fmt: off
LONGEST = {                                # calls, files, changes of rooms; a read of a timeline dict is a call
    "Heartbeat":                            (31,  13,  15),
    "ConsumerGroupHeartbeat":               (42,  17,  18),
    "OffsetCommit, 1 partition":            (125, 33,  48),
    "OffsetCommit, 100 partitions":         (132, 34,  50),
    "OffsetCommit, 1 partition, 10 groups": (170, 41,  62),
    "JoinGroup and SyncGroup":              (350, 46, 158),
    "Produce, 1 record":                    (84,  24,  28),
    "Fetch, records at hand":               (77,  24,  19),
    "Transaction":                          (539, 55, 206),
}
# fmt: on
WORK_BESIDE = 4
"""Calls of the loop's own work, such as a second turn of a queue, which the shortest request may have on a slow machine."""


@watches_calls
def test_no_way_is_longer_than_it_was() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "request_way.py", "--json"], check=True, capture_output=True, text=True
    )
    found = {way["name"]: (way["calls"], way["files"], way["changes"]) for way in json.loads(done.stdout)}
    assert found.keys() == LONGEST.keys()
    longer = {name: counts for name, counts in found.items() if _is_longer(counts, LONGEST[name])}
    assert longer == {}


def _is_longer(counts: tuple[int, int, int], most: tuple[int, int, int]) -> bool:
    return counts[0] > most[0] + WORK_BESIDE or counts[1] > most[1] or counts[2] > most[2] + WORK_BESIDE
