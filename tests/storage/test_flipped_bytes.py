"""
A byte of any file flips, after a clean stop, a kill and a power cut: no answer is wrong, and no record is lost without a word.

The trials print the table of outcomes. `UNCHECKED` names the known weaknesses. Apache Kafka has them too: its formats have no
checksum there.
"""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from kohort.testing.crashed_disk import Tree, write_tree
from kohort.wire.batch_header import LEADER_EPOCH_AT, MAGIC_AT, MAX_TIMESTAMP_AT
from tests.conftest import LONG
from tests.storage.flips import COUNT, STOPS, Answers, left_behind, outcome

FLIPS = 6
"""How many bytes of each file, always the same ones; all bytes in the long tier, with other bits in each run."""
RIGHT = ("as before", "refused to the reader", "partition not loaded", "start refused")
UNCHECKED: dict[str, str] = {
    "leader-epoch-checkpoint": r".*epoch",  # an epoch, or its start offset
    "log-start-offset-checkpoint": r"orders-\d (start|record|aborted|time)",  # a log start
    "meta.properties": r"cluster id",
    "timeindex": r".* (time|largest time)",  # a timestamp, or the offset that it points to
    "txnindex": r".* aborted",  # a producer id, or an offset
    ".log": r".*(epoch|record)",  # the leader epoch of a batch
}
"""The end of a file's name, and the questions that it may answer wrongly. The last frame of the journal is one more: a torn end
looks the same."""

pytestmark = pytest.mark.timeout(7200 if LONG else 600)


def kind_of(name: str) -> str:
    return re.sub(r"^\d+\.", "", name.rsplit("/", 1)[-1])


def content_of(name: str, content: bytes) -> bytes:
    return content.rstrip(b"\0") if name.endswith(".journal") else content


def is_unchecked(name: str, position: int, content: bytes, wrong: str) -> bool:
    if name.endswith(".log"):
        place = position_in_batch(content, position)
        if MAX_TIMESTAMP_AT <= place < MAX_TIMESTAMP_AT + 8:  # a search by time skips batches by their headers
            return all(" time " in each for each in wrong.split("; "))
        if not LEADER_EPOCH_AT <= place < MAGIC_AT:
            return False
    if name.endswith(".journal"):
        ends = [each for each in wrong.split("; ") if " end: " in each]
        return all(each.endswith(f" end: {COUNT - 1} for {COUNT}") for each in ends)
    return any(
        name.endswith(end) and all(re.match(questions, each) for each in wrong.split("; "))
        for end, questions in UNCHECKED.items()
    )


def position_in_batch(content: bytes, position: int) -> int:
    start = 0
    while (end := start + 12 + int.from_bytes(content[start + 8 : start + 12], "big")) <= position:
        start = end
    return position - start


def flips(tree: Tree, rng: Random) -> Iterator[tuple[str, int, Tree]]:
    for name, whole in tree.items():
        content = content_of(name, whole or b"")
        for position in range(len(content)) if LONG else rng.sample(range(len(content)), min(FLIPS, len(content))):
            flipped = bytearray(whole or b"")
            flipped[position] ^= 1 << rng.randrange(8)
            yield name, position, {**tree, name: bytes(flipped)}


@pytest.mark.parametrize("stop", STOPS)
def test_no_answer_is_wrong(base: Path, stop: str, rng: Random) -> None:
    if not LONG:
        rng = Random(stop)
    tree, answers = left_behind(base / "data", stop)
    assert tried(base, tree, answers) == ("refused to the reader", ""), "offsets below the log start are refused"
    table: dict[str, Counter[str]] = {}
    wrong = []
    for name, position, flipped in flips(tree, rng):
        found, details = tried(base, flipped, answers)
        content = content_of(name, tree[name] or b"")
        if found == "WRONG" and is_unchecked(name, position, content, details):
            found = "no checksum"
        elif found not in RIGHT:
            wrong.append(f"{name}, byte {position}: {found}: {details}")
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
