"""Checkpoints as Spark leaves them: whole, in the middle of a batch, damaged, and while they change."""

from collections.abc import Collection
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import TopicPartition
from kohort.model.limits import CHECKPOINT_COMMITS_MAX
from kohort.pipeline.checkpoints import checkpoint as module
from kohort.pipeline.checkpoints.checkpoint import Checkpoint as Found
from kohort.pipeline.checkpoints.checkpoint import Extent, read_checkpoint
from kohort.pipeline.checkpoints.files import Content, LocalFiles
from kohort.pipeline.checkpoints.formats import UnknownVersionError
from kohort.pipeline.checkpoints.named import Named, read_named
from tests.pipeline.checkpoints.written import BEGAN_MS, Checkpoint, plan

ORDERS = TopicPartition("orders", 0)
SECOND = 1_000


def read(query: Checkpoint, extent: Extent = Extent.ALL) -> Found:
    return read_checkpoint(LocalFiles(), "g", str(query.path), extent)


def three(path: Path, *, last_finished: bool = True) -> Checkpoint:
    """Batches 0 to 2 of ten records, ten seconds apart, of two seconds each."""
    query = Checkpoint(path)
    query.start({"orders": {0: 0}})
    for number in range(3):
        at_ms = BEGAN_MS + number * 10 * SECOND
        is_finished = number < 2 or last_finished
        query.batch(
            number,
            {"orders": {0: 10 * number + 10}},
            at_ms=at_ms,
            finished_ms=at_ms + 2 * SECOND if is_finished else None,
        )
    return query


def test_a_query_between_two_batches(tmp_path: Path) -> None:
    found = read(three(tmp_path / "c"))
    assert (found.batch, found.position, found.open_batch, found.replayed) == (2, {ORDERS: 30}, None, 0)
    assert found.finished_ms == BEGAN_MS + 22 * SECOND
    assert (found.interval_ms, found.duration_ms, found.retained) == (10 * SECOND, 2 * SECOND, 3)
    assert list(found.commits.offsets) == [10, 20, 30]
    assert found.problems == []


def test_a_query_in_a_batch(tmp_path: Path) -> None:
    found = read(three(tmp_path / "c", last_finished=False))
    assert (found.batch, found.position) == (1, {ORDERS: 20})
    assert (found.open_batch, found.open_since_ms, found.replayed) == (2, BEGAN_MS + 20 * SECOND, 10)
    assert list(found.commits.batches) == [0, 1]


def test_a_restart_reads_a_partition_that_was_added_from_its_begin(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    query.batch(3, {"orders": {0: 34, 1: 7}}, at_ms=BEGAN_MS, finished_ms=None)
    assert read(query).replayed == 4 + 7


def test_a_first_batch_of_a_query_that_does_not_tell_where_it_began(tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "c")
    query.batch(0, {"orders": {0: 34}}, at_ms=BEGAN_MS, finished_ms=None)
    found = read(query)
    assert (found.open_batch, found.replayed) == (0, 0)


def test_a_file_system_whose_clock_is_late(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    for number in range(3):
        query.write(f"commits/{number}", "v1\n{}", BEGAN_MS - 60 * SECOND)
    found = read(query)
    assert list(found.commits.times_ms) == [BEGAN_MS + at * SECOND for at in (0, 10, 20)]
    assert found.duration_ms == 0


def test_only_the_last_batch(tmp_path: Path) -> None:
    assert list(read(three(tmp_path / "c"), Extent.LAST).commits.batches) == [2]


def test_each_extent_knows_where_the_query_stands(tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "c")
    for number in range(150):
        at_ms = BEGAN_MS + number * number * SECOND
        query.batch(number, {"orders": {0: number}}, at_ms=at_ms, finished_ms=at_ms + SECOND)
    last, times, recent, whole = (read(query, one) for one in Extent)
    assert {(one.batch, one.finished_ms, one.retained, *one.position.items()) for one in (last, times, recent)} == {
        (149, whole.finished_ms, 150, (ORDERS, 149))
    }
    for one in (times, recent):
        assert (one.began_ms, one.took_ms, one.earlier) == (whole.began_ms, whole.took_ms, whole.earlier)
    batches = [list(one.commits.batches) for one in (last, times, recent, whole)]
    assert batches == [[149], [149], list(range(50, 150)), list(range(150))]


def test_a_plan_that_is_half_written(tmp_path: Path) -> None:
    query = three(tmp_path / "c", last_finished=False)
    query.write("offsets/2", "v1\n{", BEGAN_MS)
    found = read(query)
    # The plan of batch 2 is written after batch 1 has finished.
    assert (found.batch, found.position, found.open_batch, found.open_since_ms) == (1, {ORDERS: 20}, 2, None)
    assert [one.partition(" (")[0] for one in found.problems] == ["offsets/2 is damaged"]


def test_a_commit_that_is_half_written_is_none(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    query.write("commits/2", b"", BEGAN_MS)
    found = read(query)
    assert (found.batch, found.position, found.open_batch) == (1, {ORDERS: 20}, 2)


def test_the_plan_of_the_last_finished_batch_is_damaged(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    query.write("offsets/2", b"\0" * 64, BEGAN_MS)
    found = read(query)
    assert (found.batch, found.position, found.open_batch) == (1, {ORDERS: 20}, None)
    assert found.problems[-1] == "so the position is that of batch 1, and batch 2 has finished since"
    for number in (0, 1):
        query.write(f"offsets/{number}", b"v1", BEGAN_MS)
    found = read(query)
    assert (found.batch, found.position) == (None, {ORDERS: 0})
    assert found.problems[-1] == "so the position is that of where it began, and batch 2 has finished since"


def test_a_damaged_plan_of_the_past_hides_nothing_else(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    query.write("offsets/1", b"v1\n{}\n{", BEGAN_MS)
    found = read(query)
    assert (found.batch, list(found.commits.batches)) == (2, [0, 2])


def test_asynchronous_progress_leaves_gaps(tmp_path: Path) -> None:
    """Batches 1 and 2 are in no log. A restart reads from the plan before the newest one, whatever commits there are."""
    query = Checkpoint(tmp_path / "c")
    for number, end in ((0, 10), (3, 40), (4, 50)):
        query.batch(
            number, {"orders": {0: end}}, at_ms=BEGAN_MS + end, finished_ms=BEGAN_MS + end if not number else None
        )
    found = read(query)
    assert (found.batch, found.position, found.open_batch, found.replayed) == (3, {ORDERS: 40}, 4, 10)
    assert list(found.commits.offsets) == [10, 40]


def test_other_files_are_ignored(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    for name in (".3.crc", ".3.5f0c.tmp", "9.compact", "-1", "\u0663", "3.tmp", "1" * 30, "_x"):
        query.write(f"offsets/{name}", b"v9", BEGAN_MS)
        query.write(f"commits/{name}", b"v9", BEGAN_MS)
    query.write("state/0/0/1.delta", b"\0", BEGAN_MS)
    assert read(query).batch == 2


def test_numbers_are_no_texts(tmp_path: Path) -> None:
    query = Checkpoint(tmp_path / "c")
    for number in (9, 10, 100, 99):
        query.batch(number, {"orders": {0: number}}, at_ms=BEGAN_MS + number, finished_ms=BEGAN_MS + number)
    assert read(query).position == {ORDERS: 100}


def test_a_newer_spark_is_refused(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    query.write("offsets/2", b"v3\n{}\n{}", BEGAN_MS)
    with pytest.raises(UnknownVersionError, match=r"offsets/2: the offset log has version 3"):
        read(query)
    query.batch(2, {"orders": {0: 1}}, at_ms=BEGAN_MS, finished_ms=BEGAN_MS)
    query.write("commits/2", b"v4\n{}", BEGAN_MS)
    with pytest.raises(UnknownVersionError, match=r"commits/2"):
        read(query)


def test_one_checkpoint_among_many_that_cannot_be_read(tmp_path: Path) -> None:
    three(tmp_path / "a")
    three(tmp_path / "b").write("offsets/2", b"v3\n{}\n{}", BEGAN_MS)
    found = read_named([Named(None, str(tmp_path))], None)
    assert [one.group for one in found.checkpoints] == ["a"]
    assert found.problems[0].startswith("the checkpoint of b is left out: ")


def test_without_an_id(tmp_path: Path) -> None:
    query = three(tmp_path / "c")
    (query.path / "metadata").write_bytes(b"{")
    found = read(query)
    assert (found.query_id, found.batch) == (None, 2)
    assert found.problems == ["metadata is missing or damaged, so the query's id is unknown"]


class Changing(LocalFiles):
    """Spark finishes a batch and deletes old ones between a listing and a read."""

    def __init__(self, query: Checkpoint, *, times: int) -> None:
        self.query, self.left, self.number = query, times, 2

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        if self.left and directory.endswith("offsets"):
            self.left -= 1
            self.number += 1
            at_ms = BEGAN_MS + self.number * 10 * SECOND
            self.query.batch(self.number, {"orders": {0: self.number * 10}}, at_ms=at_ms, finished_ms=at_ms)
            for name in ("offsets", "commits"):
                for path in (self.query.path / name).iterdir():
                    if int(path.name) < self.number:
                        path.unlink()
        return super().read(directory, names)


def test_a_checkpoint_that_changes_while_it_is_read(tmp_path: Path) -> None:
    files = Changing(three(tmp_path / "c"), times=3)
    found = read_checkpoint(files, "g", str(files.query.path))
    assert (found.batch, found.position) == (5, {ORDERS: 50})
    busy = Changing(three(tmp_path / "busy"), times=99)
    with pytest.raises(ConfigError, match="changes while it is read"):
        read_checkpoint(busy, "g", str(busy.query.path))


def test_more_history_than_there_is_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKPOINT_COMMITS_MAX", 300)
    assert CHECKPOINT_COMMITS_MAX == 200_000
    query = Checkpoint(tmp_path / "c")
    for number in range(900):
        query.batch(number, {"orders": {0: number, 1: number}}, at_ms=BEGAN_MS + number, finished_ms=BEGAN_MS + number)
    batches = sorted(set(read(query).commits.batches))
    assert batches[-100:] == list(range(800, 900))
    assert batches[:-100] == list(range(0, 800, 16))


# A model: what a restarted Spark reads, from what happened to each file.


def test_generated_checkpoints(tmp_path: Path, rng: Random) -> None:
    for number in range(150):
        check_generated(tmp_path / str(number), rng)


def check_generated(path: Path, rng: Random) -> None:
    query, topics = Checkpoint(path), [f"t{number}" for number in range(rng.randint(1, 3))]
    version = rng.choice((1, 1, 2))
    position: dict[str, dict[int, int]] = {topic: {0: rng.randint(0, 5)} for topic in topics}
    starts = flat(position)
    query.start(position)
    at_ms = BEGAN_MS
    logged: list[Any] = []
    batches, is_async = rng.randint(0, 12), rng.random() < 0.3
    for batch in range(batches):
        at_ms += rng.randint(1, 5) * SECOND
        for topic in topics:
            if rng.random() < 0.2:
                position[topic][len(position[topic])] = 0
            position[topic] = {one: at + rng.randint(0, 9) for one, at in position[topic].items()}
        is_last = batch == batches - 1
        if is_async and not is_last and rng.random() < 0.5:
            continue
        has_commit = (not is_last or rng.random() < 0.5) and not (is_async and not is_last and rng.random() < 0.5)
        took_ms = rng.randint(0, 900)
        query.batch(batch, position, at_ms=at_ms, finished_ms=at_ms + took_ms if has_commit else None, version=version)
        logged.append([batch, flat(position), has_commit, at_ms, took_ms])
    # Retention, damage and the files of others, in any order.
    for old in logged[: rng.randint(0, max(len(logged) - 2, 0))]:
        for name in ("offsets", "commits"):
            (query.path / name / str(old[0])).unlink(missing_ok=True)
        logged = logged[1:]
    torn = {one[0] for one in logged if rng.random() < 0.15}
    for batch in torn:
        whole = plan(position, version=version).encode()
        query.write(f"offsets/{batch}", whole[: rng.randint(0, len(whole) - 2)], BEGAN_MS)
    if logged and logged[-1][2] and rng.random() < 0.2:
        logged[-1][2] = False
        query.write(f"commits/{logged[-1][0]}", b"v1\n{", BEGAN_MS)
    query.write("offsets/.99.tmp", b"", BEGAN_MS)

    found = read(query)
    finished = [one for one in logged if one is not logged[-1] or one[2]]
    known = [one for one in finished if one[0] not in torn]
    expected: dict[str, Any] = {
        "batch": known[-1][0] if known else None,
        "position": known[-1][1] if known else starts,
        "open_batch": logged[-1][0] if logged and not logged[-1][2] else None,
    }
    assert {name: getattr(found, name) for name in expected} == expected
    rows = list(
        zip(found.commits.topics, found.commits.partitions, found.commits.batches, found.commits.offsets, strict=True)
    )
    by_batch = {one[0]: one[1] for one in known} or {-1: starts}
    assert rows == [
        (place.topic, place.partition, batch, offset) for batch, of in by_batch.items() for place, offset in of.items()
    ]
    begins = {one[0]: one[3] for one in logged if one[0] not in torn}
    for batch, time_ms in zip(found.commits.batches, found.commits.times_ms, strict=True):
        later = [began_ms for other, began_ms in begins.items() if other > batch]
        assert batch < 0 or begins[batch] <= time_ms <= min(later, default=time_ms)
    assert bool(torn) == any("offsets/" in one for one in found.problems)


def flat(position: dict[str, dict[int, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, one): at for topic, of in position.items() for one, at in of.items()}
