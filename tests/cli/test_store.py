"""`kohort store`, and what `kohort serve` says about its storage."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kohort.cli.main import run
from kohort.storage.postgres.connect import Target, connect
from kohort.storage.postgres.schema import VERSION
from tests.pipeline.stored import new_store, sql
from tests.storage.database import Database

WITHOUT_DRIVER = """
import sys
sys.modules["psycopg"] = None  # an import raises ImportError
from kohort.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    made = Database()
    yield made
    made.close()


def test_a_store_is_made_once_upgraded_and_verified(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "verify", database.url]) == 2
    assert "has no store of Kohort; make one with `kohort store init" in capsys.readouterr().err
    assert run(["store", "init", database.url]) == 0
    assert capsys.readouterr().out.startswith(f"{database.url} has a store now: cluster ")
    assert run(["store", "init", database.url]) == 2
    assert "has a store of Kohort already; nothing was changed" in capsys.readouterr().err
    assert run(["store", "upgrade", database.url]) == 0
    assert capsys.readouterr().out == f"{database.url} has version {VERSION} already\n"
    assert run(["store", "verify", database.url]) == 0
    assert capsys.readouterr().out == "0 logs, 0 batches, 0 bytes: 0 problems\n"
    with database.connect() as connection:
        connection.execute("INSERT INTO kohort.batch VALUES (1, 1, 1, 0, '')")
    assert run(["store", "verify", database.url]) == 1
    assert capsys.readouterr().out.startswith("1 batches belong to no log\n")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "mysql://there"], "begins with postgresql://"),
        (["--store", "postgresql://x", "--memory"], "--memory and --store exclude each other; give one of them"),
        (
            ["--store", "postgresql://x", "--data-dir", "d"],
            "--data-dir and --store exclude each other; give one of them",
        ),
        (["--store", "postgresql://x", "--flush", "os"], "--flush os is for a data directory"),
        (
            ["--store", "postgresql://127.0.0.1:1/x"],
            "the database postgresql://127.0.0.1:1/x cannot be used: connection ",
        ),
        ([], "no storage given; use --data-dir DIR, --store URL, or --memory"),
    ],
)
def test_a_broker_says_what_is_wrong_with_its_storage(
    options: list[str], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", *options]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("command", [["serve", "--store"], ["pipeline", "lag"]])
def test_a_missing_driver_is_named(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER, *command, "postgresql://there"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'kohort[postgres]'" in done.stderr


def test_the_pipeline_says_what_is_wrong_with_a_store(capfd: pytest.CaptureFixture[str]) -> None:
    with new_store() as url:

        def said(*command: str) -> str:
            assert run(["pipeline", *command]) == 2
            told = capfd.readouterr()
            assert told.out == ""
            return told.err

        assert f"{url} holds no log of a group coordinator; it appears with the first group" in said("lag", url)
        assert "holds no log of a transaction coordinator" in said("transactions", url)
        with sql(url) as connection:
            connection.execute(b"CREATE ROLE nobody LOGIN")
            other = url.replace("kohort@", "nobody@")
            assert "permission denied for schema kohort" in said("status", other) or "no store" in said("status", other)
            connection.execute(b"UPDATE store SET version = version + 1")
            assert re.search(
                rf"the store in {re.escape(url)} has version \d+; this Kohort knows versions up to", said("lag", url)
            )
            connection.execute(b"UPDATE store SET version = 0")
            assert "kohort store upgrade" in said("export", url, "--port", "0")
            connection.execute(b"DROP SCHEMA kohort CASCADE")
            assert f"{url} has no store of Kohort" in said("lag", url)
            connection.execute(b"DROP ROLE nobody")


def test_a_password_is_given_to_libpq_and_never_printed(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    with new_store() as url:
        assert run(["pipeline", "lag", url.replace("kohort@", "kohort:s%40cret@")]) == 2
        assert os.environ["PGPASSWORD"] == "s@cret"
        assert run(["pipeline", "lag", f"{url}&password=cret"]) == 2
        assert os.environ["PGPASSWORD"] == "cret"
        told = capfd.readouterr()
        assert told.out == ""
        assert [line for line in told.err.splitlines() if f"{url} holds no log" in line] == told.err.splitlines()


def test_an_upgrade_is_refused_while_a_node_is_connected(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    with connect(Target(database.url, "kohort", "kohort of a node")):
        assert run(["store", "upgrade", database.url]) == 2
    assert f"1 connections of Kohort use {database.url}: stop every node first" in capsys.readouterr().err
