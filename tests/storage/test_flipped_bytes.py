"""
A byte of any file flips, after a clean stop, a kill and a power cut: no answer is wrong, and no record is lost without a word.

The trials print the table of outcomes. One flip cannot be told from a torn end: in the last frame of the journal, after a power
cut. The log names the frame, and the answers are those from before that frame.

The choice of bytes and bits is new in each run. The long tier flips every byte, or the share in `KOHORT_FLIPS_SHARE`.
"""

import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kohort_lab.crashed_disk import Tree, write_tree
from tests.conftest import LONG
from tests.storage.flips import COUNT, STOPS, Answers, left_behind, outcome

FLIPS = 6
"""How many bytes of each file."""
SHARE = float(os.environ.get("KOHORT_FLIPS_SHARE", "1"))
"""In the long tier: which part of all bytes."""
RIGHT = ("as before", "refused to the reader", "partition not loaded", "start refused")

pytestmark = pytest.mark.timeout(7200 if LONG else 600)


def kind_of(name: str) -> str:
    return re.sub(r"^\d+\.", "", name.rsplit("/", 1)[-1])


def content_of(name: str, content: bytes) -> bytes:
    return content.rstrip(b"\0") if name.endswith(".journal") else content


def is_torn_end(name: str, wrong: str, log: str) -> bool:
    """Whether the last frame of the journal is missing, and nothing else, and the log says so."""
    ends = [each for each in wrong.split("; ") if " end: " in each]
    is_last = all(each.endswith(f" end: {COUNT - 1} for {COUNT}") for each in ends)
    return name.endswith(".journal") and is_last and "journal.torn_frame" in log


def flips(tree: Tree, rng: Random) -> Iterator[tuple[str, int, Tree]]:
    for name, whole in tree.items():
        content = content_of(name, whole or b"")
        count = math.ceil(len(content) * SHARE) if LONG else min(FLIPS, len(content))
        for position in sorted(rng.sample(range(len(content)), count)):
            flipped = bytearray(whole or b"")
            flipped[position] ^= 1 << rng.randrange(8)
            yield name, position, {**tree, name: bytes(flipped)}


@pytest.mark.parametrize("stop", STOPS)
def test_no_answer_is_wrong(base: Path, stop: str, rng: Random, caplog: pytest.LogCaptureFixture) -> None:
    tree, answers = left_behind(base / "data", stop)
    assert tried(base, tree, answers) == ("refused to the reader", ""), "offsets below the log start are refused"
    table: dict[str, Counter[str]] = {}
    wrong = []
    for name, position, flipped in flips(tree, rng):
        caplog.clear()
        found, details = tried(base, flipped, answers)
        if found == "WRONG" and is_torn_end(name, details, caplog.text):
            found = "taken for a torn end, and logged"
        elif found not in RIGHT:
            was, now = (tree[name] or b"")[position], (flipped[name] or b"")[position]
            wrong.append(f"{name}, byte {position}, {was:02x} to {now:02x}: {found}: {details}")
        table.setdefault(kind_of(name), Counter())[found] += 1
    for kind, outcomes in sorted(table.items()):
        print(f"{stop:10} {kind:34} {dict(outcomes)}")
    assert not wrong, "\n".join(wrong)


def tried(base: Path, tree: Tree, answers: Answers) -> tuple[str, str]:
    write_tree(base / "flipped", tree)
    try:
        return outcome(base / "flipped", answers)
    finally:
        shutil.rmtree(base / "flipped")
