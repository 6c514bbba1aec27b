"""The end of logs at rest: when a coordinator last wrote."""

from pathlib import Path

from kohort.pipeline.decode.instants import end_of_logs, latest_ms
from kohort.pipeline.decode.segments import list_segments
from tests.pipeline.logbytes import batch


def test_only_coordinators_tell_the_end() -> None:
    times = {"__consumer_offsets": 5, "__transaction_state": 8, "__share_group_state": 7, "orders": 99}
    assert end_of_logs(times) == 8
    assert end_of_logs({"orders": 99}) == 0


def test_the_newest_segment_with_a_batch_has_the_latest_time(tmp_path: Path) -> None:
    """A broker that has rolled a segment and stopped leaves an empty one."""
    for topic, partition, base, log in (
        ("t", 0, 0, batch(0, [(b"k", b"v")], timestamp_ms=100)),
        ("t", 0, 1, batch(1, [(b"k", b"v")], timestamp_ms=300)),
        ("t", 0, 2, b""),
        ("t", 1, 0, batch(0, [(b"k", b"v")], timestamp_ms=200)),
        ("empty", 0, 0, b""),
    ):
        directory = tmp_path / f"{topic}-{partition}"
        directory.mkdir(exist_ok=True)
        (directory / f"{base:020}.log").write_bytes(log)
    assert latest_ms(list_segments(tmp_path)) == {"t": 300}
