"""`kohort store copy`: between a data directory and a database, both ways."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.cli.main import run
from kohort.model.errors import ConfigError
from kohort.storage.disk.copying import DirectorySource, DirectoryTarget
from kohort.storage.logs import copied
from kohort.storage.logs.copied import CopiedLog, states
from kohort.storage.postgres import PostgresStore
from kohort.storage.postgres.tools.copying import StoreTarget
from kohort.wire.batches import BatchRecord, build_batch
from tests.storage.compacted import CONFIG, clean, open_log, put, roll
from tests.storage.database import Database
from tests.storage.owner import Owner
from tests.storage.test_recorded import RUNS, unpack
from tests.wire.control_batches import control_batch


@pytest.fixture(scope="module")
def server() -> Iterator[Database]:
    made = Database()
    yield made
    made.close()


@pytest.fixture
def database(server: Database) -> Database:
    with server.connect() as connection:
        connection.execute("DROP SCHEMA IF EXISTS kohort CASCADE")
    return server.make_store()


def contents(data_dir: Path) -> list[tuple[Any, ...]]:
    """Everything of a directory that a copy keeps, with the bytes of all batches."""
    source = DirectorySource(data_dir)
    found = [
        (
            *(log.topic_partition, log.topic_id, log.leader_epoch, log.start_offset, log.end_offset, log.clean_offset),
            *(log.epochs, log.aborted, states(log)),
            b"".join(batch[3] for chunk in source.batches(log) for batch in chunk),
        )
        for log in source.logs()
    ]
    source.close()
    return found


def copy(source: object, target: object) -> None:
    assert run(["store", "copy", str(source), str(target)]) == 0


@pytest.mark.parametrize("recorded", RUNS)
def test_recorded_logs_come_back_as_they_were(
    recorded: str, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, after = unpack(recorded, tmp_path), tmp_path / "after"
    expected = contents(before)
    copy(before, database.url)
    assert run(["store", "verify", database.url]) == 0
    assert run(["store", "copy", database.url, str(after), "--json"]) == 0
    out = capsys.readouterr().out
    said = json.loads(out[out.index("{") :])
    assert contents(after) == expected
    assert (said["logs"], said["size_bytes"]) == (len(expected), sum(len(log[-1]) for log in expected))
    properties = [(path / "meta.properties").read_text().split("cluster.id=")[1] for path in (before, after)]
    assert properties[0].split("\n")[0] == properties[1].split("\n")[0]
    answers = []
    for path in (before, after):
        assert run(["pipeline", "lag", str(path), "--json"]) in (0, 1)
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_a_compacted_log_goes_both_ways(database: Database, tmp_path: Path) -> None:
    """With gaps between batches, a log start in a batch, an aborted transaction, an open one, and a raised epoch."""
    owner, before, after = Owner(), tmp_path / "before", tmp_path / "after"
    store = owner.disk(before)
    log = open_log(store)
    for number in range(20):
        put(log, *((f"k{key}", f"{number}") for key in range(5)))
    roll(log)
    put(log, ("t", "aborted"), producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    marker = control_batch(producer_id=5, producer_epoch=0, committed=False, coordinator_epoch=3, timestamp_ms=9)
    log.append(marker, leader_epoch=2)
    record = BatchRecord(b"t", b"open")
    log.append(
        build_batch([record], timestamp_ms=9, producer_id=5, producer_epoch=0, base_sequence=1, transactional=True),
        leader_epoch=2,
    )
    clean(owner, store)
    log.delete_before(97)
    store.flush()
    store.close()
    expected = contents(before)
    assert expected[0][5] == 100
    copy(before, database.url)
    with database.connect() as connection:
        assert connection.execute("SELECT clean_offset, start_offset FROM kohort.log").fetchall() == [(100, 97)]
    copy(database.url, after)
    assert contents(after) == expected
    again = Owner()
    served = again.disk(after)
    assert open_log(served, CONFIG).append(build_batch([BatchRecord(b"k", b"v")], timestamp_ms=1), leader_epoch=2)
    served.close()


# What is refused


def refused(source: object, target: object, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["store", "copy", str(source), str(target)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    return said


def test_what_is_not_empty_or_in_use_is_refused(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = unpack("main", tmp_path)
    assert "is not empty: a copy needs an empty directory" in refused(database.url, directory, capsys)
    assert "is no data directory of Kohort" in refused(tmp_path / "nowhere", database.url, capsys)
    assert "is between a data directory and a database" in refused(directory, tmp_path / "other", capsys)
    assert "is between a data directory and a database" in refused(database.url, database.url, capsys)
    source = DirectorySource(directory)
    assert "is in use by another process" in refused(directory, database.url, capsys)
    source.close()
    owner = Owner()
    store = PostgresStore(database.url, defer=owner.defer, call_soon_threadsafe=owner.call_soon_threadsafe)
    assert "stop every node first" in refused(directory, database.url, capsys)
    store.close()
    copy(directory, database.url)
    assert "has logs already: a copy needs an empty one" in refused(directory, database.url, capsys)
    with database.connect() as connection:
        connection.execute("DROP SCHEMA kohort CASCADE")
    assert "has no store of Kohort; make one" in refused(directory, database.url, capsys)


@pytest.mark.parametrize("when", ["in the midst", "at the comparison"])
@pytest.mark.parametrize("into", ["database", "directory"])
def test_a_start_on_an_interrupted_copy_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, into: str, when: str
) -> None:
    directory, target = unpack("main", tmp_path), tmp_path / "target"
    if into == "directory":
        copy(directory, database.url)

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    if when == "in the midst":
        monkeypatch.setattr(StoreTarget if into == "database" else DirectoryTarget, "write", interrupt)
    else:
        monkeypatch.setattr(copied, "_difference", interrupt)
    assert run(
        ["store", "copy", *map(str, (directory, database.url) if into == "database" else (database.url, target))]
    )
    monkeypatch.undo()
    owner = Owner()
    with pytest.raises(ConfigError, match="was interrupted"):
        owner.disk(target) if into == "directory" else PostgresStore(
            database.url, defer=owner.defer, call_soon_threadsafe=owner.call_soon_threadsafe
        )


def test_a_copy_that_differs_is_refused(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = unpack("main", tmp_path)
    write = StoreTarget.write

    def lose(target: StoreTarget, log: CopiedLog, chunks: Any) -> None:
        write(target, log, ([batch for batch in chunk if batch[0] != 3] for chunk in chunks))

    monkeypatch.setattr(StoreTarget, "write", lose)
    assert "differs from it: its batches. The copy cannot be used: make it anew" in refused(
        directory, database.url, capsys
    )
    assert "was interrupted" in refused(directory, database.url, capsys)
