"""
A file or directory of a data directory is removed, emptied, cut or replaced, after a clean stop, a kill and a power cut: the
answers are as before, or the log says what is missing and `log verify` names it; and `log repair` brings a partition back.

The choice of files is new in each run. The long tier takes all of them.
"""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from kohort.broker.catalog.catalog import CATALOG
from kohort.broker.catalog.repair import CatalogRescue
from kohort.cli.main import run
from kohort.model.errors import UnavailableError
from kohort.storage.files.checkpoint_formats import RECOVERY_POINTS
from kohort.storage.log import LogConfig
from kohort.storage.segments.missing import INDEX_SUFFIXES
from kohort.storage.tools.repair import find_damaged, repair
from kohort.storage.tools.verify import Problem, Verified, verify
from kohort.wire.batches import BatchRecord, build_batch
from kohort_lab.crashed_disk import Tree, write_tree
from tests.conftest import LONG
from tests.storage.flips import STOPS, Answers, left_behind, outcome
from tests.storage.owner import PARTITION, TOPIC_ID, Owner, abandon, batch
from tests.storage.test_deletions import await_background
from tests.storage.test_flipped_bytes import kind_of

TRIALS = 40
"""How many of some 400 after each kind of stop."""
AS_BEFORE = ("as before", "refused to the reader")
SAID = {
    "meta.properties":             "store.properties_missing",
    "log-start-offset-checkpoint": "store.log_starts_missing",
    "journal":                     "journal.lost",
    "0.journal":                   "journal.lost",
    "1.journal":                   "journal.lost",
    "log":                         "log.gap",
}  # fmt: skip
"""What a start says that goes on without a file, and gives other answers."""
UNCLEAN = ".kafka_cleanshutdown"
"""Without this file a clean stop counts as a kill: leader epochs begin, and nothing is lost."""

CONFIG = LogConfig(segment_bytes=250)

Damage = Callable[[Path], object]

pytestmark = pytest.mark.timeout(3600 if LONG else 300)


def empty_directory(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def replace_directory(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def written(path: Path) -> bytes:
    """The content without the zeros at the end, which are space that was reserved."""
    return path.read_bytes().rstrip(b"\0")


def replace_file(path: Path) -> None:
    path.unlink()
    path.mkdir()


DIRECTORIES: dict[str, Damage] = {
    "removed": shutil.rmtree,
    "emptied": empty_directory,
    "a file": replace_directory,
}
FILES: dict[str, Damage] = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.open("wb").close(),
    "without its last byte": lambda path: path.write_bytes(written(path)[:-1]),
    "halved": lambda path: path.write_bytes(written(path)[: len(written(path)) // 2]),
    "a directory": replace_file,
}


def trials(root: Path, tree: Tree) -> Iterator[tuple[str, str, Damage]]:
    write_tree(root, tree)
    for path in sorted(root.rglob("*")):
        for what, damage in (DIRECTORIES if path.is_dir() else FILES).items():
            yield str(path.relative_to(root)), what, damage
    shutil.rmtree(root)


@pytest.mark.parametrize("stop", STOPS)
def test_what_is_missing_is_said(base: Path, stop: str, rng: Random, caplog: pytest.LogCaptureFixture) -> None:
    tree, answers = left_behind(base / "data", stop)
    every = list(trials(base / "all", tree))
    table: dict[str, Counter[str]] = {}
    wrong = []
    for name, what, damage in every if LONG else rng.sample(every, TRIALS):
        write_tree(base / "damaged", tree)
        damage(base / "damaged" / name)
        caplog.clear()
        found, complaint = tried(base / "damaged", kind_of(name), answers, caplog)
        shutil.rmtree(base / "damaged")
        if complaint and not (name == UNCLEAN and "epoch" in complaint):
            wrong.append(f"{name} {what}: {found}: {complaint}")
        table.setdefault(kind_of(name), Counter())[found] += 1
    for kind, outcomes in sorted(table.items()):
        print(f"{stop:10} {kind:34} {dict(outcomes)}")
    assert not wrong, "\n".join(wrong)


def tried(root: Path, kind: str, answers: Answers, caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """The outcome, and what is wrong with it."""
    problems = verified(root)
    found, details = outcome(root, answers)
    if found in (*AS_BEFORE, "start refused"):
        return found, ""
    if found == "partition not loaded":
        reason = re.search(r"log\.(not_loaded|damaged) partition=(\S+)", caplog.text)
        if reason is None:
            return found, "no line names the partition"
        if not problems:
            return found, f"verify has no problem: {caplog.text}"
        return found, unrepaired(root, answers) if "Nothing was changed; `kohort log repair" in caplog.text else ""
    if found == "WRONG" and SAID.get(kind, "-") in caplog.text:
        return "said", "" if problems else f"verify has no problem: {details}"
    return found, f"{details} {caplog.text}"


def verified(root: Path) -> list[Problem | OSError]:
    """The problems that a start does not repair, or the error that ends the command."""
    try:
        return [problem for problem in verify(root, Verified()) if not problem.is_repaired]
    except OSError as error:
        return [error]


def unrepaired(root: Path, answers: Answers) -> str:
    """What is wrong after `log repair`; "" if the partition is loaded again."""
    if any(path.is_dir() for path in root.glob("*/*.*")):
        return ""  # It has to be moved away, which the log says, too.
    damaged = list(find_damaged(root, {CATALOG: CatalogRescue(root)}))
    repair(root, damaged)
    found, details = outcome(root, answers)
    is_loaded = damaged and found not in ("partition not loaded", "start refused", "TRACEBACK")
    return "" if is_loaded else f"after a repair of {len(damaged)} partitions: {found} {details}"


def stopped_store(root: Path, *, is_killed: bool = False, delete_before: int = 0) -> list[Path]:
    """A log of several segments, whose first producer has an open transaction; its segments."""
    owner = Owner()
    store = owner.disk(root)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    record = [BatchRecord(None, b"x")]
    log.append(
        build_batch(record, timestamp_ms=1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
        leader_epoch=0,
    )
    for number in range(9):
        log.append(batch(f"value {number}"), leader_epoch=0)
    store.flush()
    if delete_before:
        log.delete_before(delete_before)
        owner.run_turn()
        store.flush()
    paths = [segment.path for segment in log.segments]
    assert len(paths) > 3
    if is_killed:
        abandon(store)
    else:
        store.close()
    return paths


def test_a_middle_segment_that_was_emptied_is_a_gap(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing but its name is left; the start serves the rest."""
    root = base / "data"
    middle = stopped_store(root)[2]
    middle.open("wb").close()
    for suffix in INDEX_SUFFIXES:
        middle.with_suffix(suffix).unlink(missing_ok=True)
    (problem,) = verified(root)
    assert isinstance(problem, Problem)
    assert problem.path == middle
    assert re.fullmatch(r"is empty, and its index is missing: offsets up to \d+ are lost", problem.what)
    assert run(["log", "verify", str(root)]) == 1
    store = Owner().disk(root)
    assert store.open(PARTITION, TOPIC_ID, CONFIG).end_offset == 10
    assert f"log.gap path={middle} error='{middle} is empty, and its indexes are missing: offsets up to" in caplog.text
    store.close()


def test_a_cleaned_segment_without_records_is_no_gap(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The cleaner leaves its indexes, which are empty, too."""
    root = base / "data"
    middle = stopped_store(root)[2]
    for suffix in (".log", ".index", ".timeindex"):
        middle.with_suffix(suffix).open("wb").close()
    middle.with_suffix(".checksums").unlink()
    assert verified(root) == []
    store = Owner().disk(root)
    assert store.open(PARTITION, TOPIC_ID, CONFIG).end_offset == 10
    store.close()
    assert "log.gap" not in caplog.text


def test_a_partition_that_cannot_be_loaded_is_named_once(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = base / "data"
    replace_file(stopped_store(root)[1])
    store = Owner().disk(root)
    for _ in range(3):
        with pytest.raises(UnavailableError, match="orders-0 cannot be loaded"):
            store.open(PARTITION, TOPIC_ID, CONFIG)
    lines = [record.getMessage() for record in caplog.records if PARTITION.topic in record.getMessage()]
    assert [line.split(" error")[0] for line in lines] == ["log.not_loaded partition=orders-0"]
    store.close()


@pytest.mark.parametrize("is_renamed", [False, True])
def test_a_journal_that_is_lost_is_named(base: Path, caplog: pytest.LogCaptureFixture, *, is_renamed: bool) -> None:
    """The deletion of records was in the journal only. Readers see by the new leader epoch that the log may be another one."""
    root = base / "data"
    stopped_store(root, is_killed=True, delete_before=2)
    assert verified(root) == []
    if is_renamed:
        (root / "journal").rename(root / "elsewhere")
    else:
        for path in (root / "journal").iterdir():
            path.unlink()
    (problem,) = verified(root)
    assert "1.journal is missing: acknowledged deletions of records" in str(problem)
    store = Owner().disk(root)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    assert (log.log_start_offset, log.end_offset, log.leader_epoch) == (0, 10, 1)
    assert "journal.lost error='" in caplog.text
    assert "deletions of records and leader epochs since the last checkpoint may be undone" in caplog.text
    store.close()
    caplog.clear()
    assert verified(root) == []
    Owner().disk(root).close()
    assert caplog.text == "", "said once"


def test_without_snapshots_the_log_tells_which_transactions_are_open(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = base / "data"
    stopped_store(root)
    removed = list((root / str(PARTITION)).glob("*.snapshot"))
    for path in removed:
        path.unlink()
    assert len(removed) > 1
    (problem,) = verify(root, Verified())
    assert (problem.path, problem.what) == (
        root / str(PARTITION), "has no snapshot of the producers, which a stop writes",
    )  # fmt: skip
    store = Owner().disk(root)
    log = store.open(PARTITION, TOPIC_ID, CONFIG)
    assert (log.last_stable_offset, log.producers.states[5].transaction_offset) == (0, 0)
    assert f"log.snapshot_missing directory={root / str(PARTITION)}" in caplog.text
    store.close()


def test_a_new_log_has_no_snapshot_after_a_kill(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner()
    store = owner.disk(base / "data")
    store.open(PARTITION, TOPIC_ID, CONFIG).append(batch("x"), leader_epoch=0)
    store.flush()
    abandon(store)
    store = Owner().disk(base / "data")
    assert store.open(PARTITION, TOPIC_ID, CONFIG).end_offset == 1
    store.close()
    assert "snapshot_missing" not in caplog.text


def test_a_directory_of_a_deleted_partition_is_not_missed(base: Path) -> None:
    """The recovery points of the last checkpoint still have it, the journal has its deletion."""
    root = base / "data"
    stopped_store(root)
    owner = Owner()
    store = owner.disk(root)
    points = (root / RECOVERY_POINTS).read_bytes()
    store.open(PARTITION, TOPIC_ID, CONFIG)
    store.delete(PARTITION)
    owner.run_turn()
    store.flush()
    await_background(store)
    abandon(store)
    (root / RECOVERY_POINTS).write_bytes(points)
    assert verified(root) == []
