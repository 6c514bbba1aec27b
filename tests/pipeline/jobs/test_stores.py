"""Tables in an object store change all at once, whatever happens to who writes them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem, _MockFileSystem

from kohort.cli.pipeline.run_command import local_out
from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import published, stores
from kohort.pipeline.jobs.pointer import VERSIONS, Published
from kohort.pipeline.jobs.stores import Store
from kohort.pipeline.tables.contract import COLUMNS

TABLES = ("offset_commits", "members")
WRITING = ("open_output_stream", "copy_file", "create_dir", "delete_dir", "move")


class Watched:
    """A file system, and what somebody does before each of its writes."""

    def __init__(self, system: Any, before_write: Callable[[], None]) -> None:
        self._system = system
        self._before_write = before_write

    def __getattr__(self, name: str) -> Any:
        if name in WRITING:
            self._before_write()
        return getattr(self._system, name)


def made(out: Path, number: int, *, source: str = "/logs") -> Published:
    """A version whose tables all say its number; one file of each stays the same."""

    def write(directory: Path) -> None:
        for name in TABLES:
            (directory / name).mkdir()
            for file, value in ((f"part-{number}.parquet", number), ("part-0.parquet", 0)):
                columns: dict[str, Any] = {column: [None] for column in COLUMNS[name]} | {
                    "group": ["g"],
                    "log_offset": [value],
                }
                pq.write_table(pa.table(columns | {"first_log_offset": [value]}), directory / name / file)

    return published.publish(out, source, write, made_of={"number": number})


def seen(store: Store) -> set[int]:
    """The numbers that a reader finds in all tables of the current version."""
    found = stores.current(store)
    if found is None:
        return set()
    columns = [stores.table(store, found, name).to_table().column("log_offset").to_pylist() for name in TABLES]
    return {max(column) for column in columns}


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return Store("mock://bucket", _MockFileSystem(), "bucket/kohort")
    return Store("file://", LocalFileSystem(), str(tmp_path / "store"))


def test_a_reader_sees_one_version_or_the_other(store: Store, tmp_path: Path) -> None:
    """Looked at before every single write."""
    told: list[set[int]] = []
    watched = Store(store.uri, Watched(store.system, lambda: told.append(seen(store))), store.path)
    for number in (1, 2, 3):
        assert stores.publish(watched, made(tmp_path / "out", number)).is_new
        assert seen(store) == {number}
        assert told[-1] in ({number - 1}, set())
    assert all(len(one) <= 1 for one in told)
    # A version that is current and the one before it; older ones are gone.
    versions = {name.partition("/")[0] for name in store.sizes(VERSIONS)}
    assert versions == {"2", "3"}


def test_a_writer_that_dies_at_any_write_changes_nothing(store: Store, tmp_path: Path) -> None:
    stores.publish(store, made(tmp_path / "out", 1))
    second = made(tmp_path / "out", 2)
    writes_left = 0

    def break_down() -> None:
        nonlocal writes_left
        writes_left -= 1
        if writes_left < 0:
            raise OSError("the network is gone")

    watched = Store(store.uri, Watched(store.system, break_down), store.path)
    told = ""
    attempts = 0
    while seen(store) == {1}:
        writes_left = attempts = attempts + 1
        try:
            stores.publish(watched, second)
        except ConfigError as exc:
            told = str(exc)
    assert "the network is gone" in told
    assert attempts > 5
    assert seen(store) == {2}


def test_what_is_there_already_is_not_sent_again(store: Store, tmp_path: Path) -> None:
    first = stores.publish(store, made(tmp_path / "out", 1))
    second = stores.publish(store, made(tmp_path / "out", 2))
    # The file that stayed has the size it had; the store copies it itself.
    assert 0 <= second.bytes_written < first.bytes_written
    assert stores.publish(store, published.current(tmp_path / "out")) == stores.Stored(2, 0, is_new=False)


def test_the_store_counts_its_own_versions(store: Store, tmp_path: Path) -> None:
    """Runs that have begun anew, elsewhere, count from one; files of a version that counts are not written over."""
    stores.publish(store, made(tmp_path / "out", 1))
    stores.publish(store, made(tmp_path / "out", 2))
    again = made(tmp_path / "anew", 7)
    assert again.version == 1
    assert stores.publish(store, again).version == 3
    assert seen(store) == {7}


def test_tables_of_another_source_are_not_replaced(store: Store, tmp_path: Path) -> None:
    stores.publish(store, made(tmp_path / "out", 1))
    with pytest.raises(ConfigError, match="holds tables of /logs; name another place"):
        stores.publish(store, made(tmp_path / "other", 1, source="/elsewhere"))


def test_commands_read_a_store_as_they_read_a_directory(tmp_path: Path) -> None:
    uri = (tmp_path / "store").as_uri()
    assert not published.is_published(uri)
    stores.publish(stores.opened(uri), made(tmp_path / "out", 1))
    assert published.is_published(uri)
    for name in TABLES:
        assert published.rows(uri, name) == published.rows(tmp_path / "out", name)
    assert published.rows(uri, "members", where={"group": "nobody"}) == []
    with pytest.raises(ConfigError, match="holds no table lag;"):
        published.rows(uri, "lag")


@pytest.mark.parametrize("uri", ["hdfs://host/dir", "http://host/dir", "nonsense://x"])
def test_where_a_pointer_cannot_be_replaced_at_once_nothing_is_published(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"tables can be published to s3://, gs://"):
        stores.opened(uri)


def test_a_run_keeps_its_rows_in_a_directory() -> None:
    with pytest.raises(ConfigError, match="must be a local directory"):
        local_out("s3://bucket/kohort")
    assert local_out("tables") == Path("tables")
