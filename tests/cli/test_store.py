"""`kohort store`, and what `kohort serve` says about its storage."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from kohort.cli.main import run
from kohort.storage.postgres.schema import VERSION
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
    assert capsys.readouterr().out.startswith("postgresql://kohort@/postgres has a store now: cluster ")
    assert run(["store", "init", database.url]) == 2
    assert "has a store of Kohort already; nothing was changed" in capsys.readouterr().err
    assert run(["store", "upgrade", database.url]) == 0
    assert capsys.readouterr().out == f"postgresql://kohort@/postgres has version {VERSION} already\n"
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


def test_a_missing_driver_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_DRIVER, "serve", "--store", "postgresql://there"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'kohort[postgres]'" in done.stderr
