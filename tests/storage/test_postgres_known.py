"""What a node knows of its database from before: older copies and other databases are refused at a start."""

import re
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from kohort.cli.main import run
from kohort.model.errors import ConfigError
from kohort.storage.log import LogConfig
from kohort.storage.postgres.connect import Target
from kohort.storage.postgres.known import Known, KnownDatabase
from kohort.storage.postgres.schema import SCHEMA
from kohort.storage.postgres.session import Session
from tests.storage.database import Database, shared_database
from tests.storage.owner import PARTITION, TOPIC_ID, batch
from tests.storage.test_postgres import Stored, stored

__all__ = ["stored"]

END_SESSION = b"""
CREATE FUNCTION end_session() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END';
CREATE TRIGGER end_session BEFORE UPDATE ON store FOR EACH ROW EXECUTE FUNCTION end_session()
"""


def known_of(directory: Path) -> tuple[Path, Known]:
    (path,) = directory.iterdir()
    return path, msgspec.json.decode(path.read_bytes(), type=Known)


def start(stored: Stored, directory: Path) -> None:
    stored.store.close()
    stored.open_store(known=KnownDatabase(PARTITION, directory))


def test_a_start_knows_the_database_of_the_one_before(stored: Stored, tmp_path: Path) -> None:
    start(stored, tmp_path)
    first = known_of(tmp_path)[1]
    log = stored.store.open(PARTITION, TOPIC_ID, LogConfig())
    log.append(batch("a", "b"), leader_epoch=0)
    stored.store.flush()
    stored.store.clean(stored.store.cleaner.config)
    start(stored, tmp_path)
    second = known_of(tmp_path)[1]
    assert (first.starts, second.starts, first.catalog_offset, second.catalog_offset) == (1, 2, 0, 2)
    assert second.written_log_bytes > first.written_log_bytes > 0
    assert first.system_identifier == second.system_identifier > 0


def test_a_start_whose_session_ends_is_refused_with_a_sentence(stored: Stored, tmp_path: Path) -> None:
    """A node that joins again tries again then."""
    stored.sql.execute(END_SESSION)
    with pytest.raises(ConfigError, match="refuses: terminating connection due to administrator command"):
        start(stored, tmp_path)
    assert not list(tmp_path.iterdir())


# fmt: off
CHANGES = {  # a field, what is added to it: the sentence, or none
    "another database":       ("system_identifier", 1, "its system identifier is"),
    "a promoted standby":     ("timeline", 1, ""),
    "fewer starts":           ("starts", 1, "it has counted 1 starts of nodes, and had 2"),
    "a shorter log":          ("written_log_bytes", 1 << 40, "its own log ends at"),
    "an older catalog":       ("catalog_offset", 1, "its catalog ends at offset 0, and had 1"),
    "a database that is new": ("starts", -1, ""),
}
# fmt: on


@pytest.mark.parametrize("case", CHANGES)
def test_an_older_copy_is_refused_until_it_is_accepted(stored: Stored, tmp_path: Path, case: str) -> None:
    field, more, said = CHANGES[case]
    start(stored, tmp_path)
    path, known = known_of(tmp_path)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(known, **{field: getattr(known, field) + more})))
    if said:
        with pytest.raises(
            ConfigError, match=re.escape(f"run `kohort store accept '{shared_database().url}'` here")
        ) as refused:
            start(stored, tmp_path)
        assert said in str(refused.value)
        assert stored.rows("SELECT starts FROM store") == [(1,)]
        KnownDatabase(PARTITION, tmp_path).accept(stored.sql, path.stem)
    start(stored, tmp_path)


def test_what_is_known_may_be_gone_or_unreadable(stored: Stored, tmp_path: Path) -> None:
    start(stored, tmp_path)
    path = known_of(tmp_path)[0]
    path.write_bytes(b"{")
    start(stored, tmp_path)
    assert known_of(tmp_path)[1].starts == 2
    path.unlink()
    tmp_path.rmdir()
    tmp_path.write_bytes(b"")
    start(stored, tmp_path)


def test_accept_is_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    database = Database().make_store()
    try:
        assert run(["store", "accept", database.url]) == 0
        path = known_of(tmp_path / "kohort" / "stores")[0]
        assert capsys.readouterr().out.endswith(f"{path} has what {database.url} is now\n")
        with database.connect() as connection:
            connection.execute(f"DROP SCHEMA {SCHEMA} CASCADE")
        assert run(["store", "accept", database.url]) == 2
    finally:
        database.close()


def test_a_promoted_standby_is_another_database_before_its_first_checkpoint() -> None:
    # Three seconds: two servers. PostgreSQL makes that checkpoint in the background, slowly if there is something to write.
    with ExitStack() as closing:
        primary = Database(synchronous_standby_names="standby", synchronous_commit="remote_apply")
        closing.callback(primary.close)
        standby = Database(standby_of=primary)
        closing.callback(standby.close)
        schema = primary.new_schema()
        with primary.connect() as connection:
            connection.execute("CREATE TABLE large AS SELECT generate_series(1, 200000) AS n")
        known = Session(Target(primary.url, schema), None)
        known.connection.close()
        primary.kill()
        standby.promote()
        with pytest.raises(ConfigError, match=r"is another database than at the start.* A standby was promoted"):
            Session(Target(standby.url, schema), None, known.identity)
