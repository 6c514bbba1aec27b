"""Segment files of a data directory, without files of deleted, stray and future partitions."""

from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline.decode import storage
from kohort.pipeline.decode.batches import scan
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.records import windows
from kohort.pipeline.decode.segments import Segment, list_segments, newest_segments
from kohort.pipeline.sources.directory import packed
from tests.pipeline.logbytes import batch, offset_key, offset_value

LOG = "00000000000000000000.log"
# fmt: off
FILES = {
    f"orders-0/{LOG}":                                       True,
    "orders-0/00000000000000000123.log":                     True,
    "orders-10/00000000000000000007.log":                    True,
    f"with-dash.and_dot-3/{LOG}":                            True,
    "orders-0/00000000000000000000.index":                   False,
    "orders-0/00000000000000000000.log.deleted":             False,
    "orders-0/00000000000000000000.log.cleaned":             False,
    "orders-0/00000000000000000000.log.swap":                False,
    "orders-0/leader-epoch-checkpoint":                      False,
    f"orders-0.0123456789abcdef0123456789abcdef-delete/{LOG}": False,
    f"orders-0.0123456789abcdef0123456789abcdef-stray/{LOG}":  False,
    f"orders-0.0123456789abcdef0123456789abcdef-future/{LOG}": False,
    f"journal/{LOG}":                                        False,
    "meta.properties":                                       False,
}
# fmt: on


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    return tmp_path


def test_only_segments_of_live_partitions_count(directory: Path) -> None:
    found = [str(Path(segment.path).relative_to(directory)) for segment in list_segments(directory)]
    assert found == sorted(name for name, counts in FILES.items() if counts)


def test_topics_and_partitions_can_be_chosen(directory: Path) -> None:
    found = list_segments(directory, topics={"orders"}, partitions={10})
    assert [(one.topic, one.partition, one.base_offset, one.size_bytes) for one in found] == [("orders", 10, 7, 5)]


def test_the_newest_segment_of_each_partition(directory: Path) -> None:
    newest = newest_segments(list_segments(directory, topics={"orders"}))
    assert [(one.partition, one.base_offset) for one in newest] == [(0, 123), (10, 7)]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere is not a directory; name the data directory"):
        list_segments(tmp_path / "nowhere")


def test_several_log_directories_are_linked_into_one(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"/a,/b is not a directory; a source is one directory.*ln -s /a/\*-\[0-9\]\* /b/"
    ):
        list_segments("/a,/b")
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("orders-0", "orders-10"):
        (linked / name).symlink_to(directory / name)
    assert [(one.partition, one.base_offset) for one in list_segments(linked)] == [(0, 0), (0, 123), (10, 7)]


def test_a_segment_that_was_deleted_meanwhile_is_the_readers_affair(directory: Path) -> None:
    """`sources.segment_reads` knows whether its records are in another segment now."""
    segments = list_segments(directory, topics={"orders"})
    Path(segments[0].path).unlink()
    with pytest.raises(FileNotFoundError):
        list(Decoder(kinds={"segment"}).decode_file(segments[0]))


def test_a_compacted_segment_that_is_being_renamed_counts(directory: Path) -> None:
    (directory / f"orders-0/{LOG}").unlink()
    assert [one.name for one in list_segments(directory, topics={"orders"}, partitions={0})] == [
        f"{LOG}.swap",
        "00000000000000000123.log",
    ]


def sized(*sizes: int) -> list[Segment]:
    return [Segment("t", 0, offset, f"{offset}.log", size) for offset, size in enumerate(sizes)]


# fmt: off
PACKS = [  # sizes           packs of 100 bytes
    ((),                     []),
    ((30, 30, 30),           [(30, 30, 30)]),
    ((60, 40, 1),            [(60, 40), (1,)]),
    ((60, 41),               [(60,), (41,)]),
    ((500, 1, 500),          [(500,), (1,), (500,)]),
    ((0, 0),                 [(0, 0)]),
]
# fmt: on


@pytest.mark.parametrize(("sizes", "packs"), PACKS)
def test_segments_are_packed_by_bytes(sizes: tuple[int, ...], packs: list[tuple[int, ...]]) -> None:
    got = packed(sized(*sizes), lambda one: one.size_bytes, pack_bytes=100)
    assert [tuple(segment.size_bytes for segment in pack) for pack in got] == packs


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells what of a mapping is in memory")
def test_of_a_segment_only_a_part_stays_in_memory(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    one = batch(0, [(offset_key("g", "t", 0), offset_value(5, metadata="m" * 30_000))] * 30)
    path.write_bytes(one * 40)
    mapping = storage.mapped(str(path))
    found = scan(mapping)
    assert in_memory(path) < 1 << 20
    for window in windows(found, window_bytes=8 << 20):
        assert window.data[: len(one)].tobytes() == one
        assert in_memory(path) < 1 << 20
    assert mapping[: len(one)] == one


def in_memory(path: Path) -> int:
    """How many bytes of a mapped file this process holds."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = next(row for row, line in enumerate(lines) if line.endswith(str(path)))
    rss = next(line for line in lines[at:] if line.startswith("Rss:"))
    return int(rss.split()[1]) << 10


def test_logs_that_clients_cannot_read_have_to_be_named(tmp_path: Path) -> None:
    """A directory has the topics that the cluster has over the wire."""
    for name in ("__cluster_metadata-0", "__kohort_catalog-0", "orders-0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{0:020}.log").touch()
    assert [one.topic for one in list_segments(tmp_path)] == ["orders"]
    assert [one.topic for one in list_segments(tmp_path, topics={"__cluster_metadata"})] == ["__cluster_metadata"]
