"""The end of logs at rest: when a broker last wrote, as far as coordinators and proved topics tell."""

from pathlib import Path

import pytest

from kohort.pipeline.decode.segments import list_segments
from kohort.pipeline.sources.instants import (
    SILENCE_MAX_MS,
    SKEW_MS,
    Read,
    end_of_logs,
    end_of_source,
    latest_ms,
    newest_reads,
    proofs,
    right_topics,
)
from tests.pipeline.logbytes import batch, marker

T = 1_000_000
PLACE = ("t", 0)


def write(directory: Path, topic: str, partition: int, base: int, log: bytes) -> None:
    path = directory / f"{topic}-{partition}"
    path.mkdir(exist_ok=True)
    (path / f"{base:020}.log").write_bytes(log)


def one(base: int, at_ms: int) -> bytes:
    return batch(base, [(b"k", b"v")], timestamp_ms=at_ms)


def test_coordinators_and_proved_topics_tell_the_end() -> None:
    times = {"__consumer_offsets": 5, "__transaction_state": 8, "__share_group_state": 7, "orders": 99, "others": 50}
    assert end_of_logs(times) == 8
    assert end_of_logs(times, {"orders", "unknown"}) == 99
    assert end_of_logs({"orders": 99}) == 0


@pytest.mark.parametrize(("at_ms", "end_ms"), [(SILENCE_MAX_MS + 8, SILENCE_MAX_MS + 8), (SILENCE_MAX_MS + 9, 8)])
def test_a_record_of_another_year_does_not_count(at_ms: int, end_ms: int) -> None:
    assert end_of_logs({"__consumer_offsets": 8, "orders": at_ms}, {"orders"}) == end_ms


def test_the_newest_segment_with_a_batch_has_the_latest_time(tmp_path: Path) -> None:
    """A broker that has rolled a segment and stopped leaves an empty one."""
    write(tmp_path, "t", 0, 0, one(0, 100))
    write(tmp_path, "t", 0, 1, one(1, 300))
    write(tmp_path, "t", 0, 2, b"")
    write(tmp_path, "t", 1, 0, one(0, 200))
    write(tmp_path, "empty", 0, 0, b"")
    assert latest_ms(list_segments(tmp_path)) == {"t": 300}


def test_of_each_partition_the_first_of_the_greatest_commits_counts() -> None:
    commits = [("t", 0, 5, 10), ("t", 0, 9, 30), ("t", 0, 9, 20), ("t", 1, None, 5), ("t", 2, 5, None)]
    assert newest_reads(commits) == {PLACE: Read(9, 20)}


# the log, the committed offset, when it was committed: whether timestamps are right; None: no proof
PROOFS = [
    (one(0, T), 1, T - SKEW_MS, True),
    (one(0, T), 1, T - SKEW_MS - 1, False),
    (one(0, T), 0, T, None),  # nothing was read
    (one(5, T), 3, T, None),  # what was read is deleted
    (one(0, T) + one(1, T + 99_999), 1, T, True),  # what was not read does not matter
    (one(0, T + 99_999) + one(1, T), 2, T, True),
    (batch(0, [(b"k", b"v")] * 9, timestamp_ms=T), 5, T - SKEW_MS, True),
    (one(0, T) + marker(1, 7, committed=True), 2, T, True),  # a marker has the time of a broker, here a later one
]


@pytest.mark.parametrize(("log", "offset", "committed_ms", "expected"), PROOFS)
def test_a_commit_proves_timestamps_right_or_wrong(
    tmp_path: Path, log: bytes, offset: int, committed_ms: int, expected: bool | None
) -> None:
    write(tmp_path, "t", 0, 5 if log == one(5, T) else 0, log)
    found = proofs(list_segments(tmp_path), {PLACE: Read(offset, committed_ms), ("gone", 0): Read(1, T)})
    assert found == ({} if expected is None else {PLACE: expected})


def test_one_wrong_partition_makes_a_topic_wrong() -> None:
    assert right_topics({("t", 0): True, ("t", 1): False, ("u", 0): True}) == {"u"}


def test_the_end_of_a_directory(tmp_path: Path) -> None:
    """The only group has died, and its topic goes on; another topic has records of the future."""
    write(tmp_path, "__consumer_offsets", 0, 0, one(0, T))
    write(tmp_path, "t", 0, 0, one(0, T - 5) + one(1, T + 3_600_000))
    write(tmp_path, "future", 0, 0, one(0, T + 7_200_000))
    assert end_of_source(str(tmp_path), {}) == T
    assert end_of_source(str(tmp_path), {PLACE: Read(1, T)}) == T + 3_600_000
    assert end_of_source(str(tmp_path), {PLACE: Read(1, T), ("future", 0): Read(1, T)}) == T + 3_600_000
