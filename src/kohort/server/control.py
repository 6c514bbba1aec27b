"""
The control socket of a process with several brokers: `kohort brokers stop` and `start` have no API of Kafka.

A Unix socket in a directory that only the user of the process may enter; clients of the brokers cannot reach it. One JSON
object a line: `{"stop": 2}` or `{"start": 2}` is answered with `{"error": null}`, or with a sentence.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from kohort.model.errors import ConfigError, KohortError

LINE_BYTES_MAX: Final = 4096
IDLE_SECONDS_MAX: Final = 60.0


def control_directory() -> Path:
    """
    The directory of the control sockets of this user; created if it does not exist.

    Raises:
        ConfigError: another user could enter it.
    """
    directory = Path(tempfile.gettempdir()) / f"kohort-{os.getuid()}"
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    status = directory.lstat()
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077
    if not is_own:
        raise ConfigError(
            f"{directory} may be used by other users; remove it, or set TMPDIR to a directory of your own"
        )
    return directory


def control_path(cluster_id: str) -> Path:
    """The control socket of the cluster with this id. Raises: as `control_directory`."""
    return control_directory() / f"{cluster_id.replace('/', '_')}.sock"


class Control:
    """
    Args:
        path: of the socket; an old one is replaced.
        commands: by name: a function of a broker id. It raises KohortError with a sentence if it cannot be carried out.
    """

    def __init__(self, path: Path, commands: Mapping[str, Callable[[int], Awaitable[None]]]) -> None:
        self.path = path
        self._commands = commands
        self._server: asyncio.Server | None = None
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> None:
        with suppress(FileNotFoundError):
            self.path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, self.path, limit=LINE_BYTES_MAX)
        self.path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            with suppress(FileNotFoundError):
                self.path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not _is_own_user(writer.get_extra_info("socket")):
                return
            async with asyncio.timeout(IDLE_SECONDS_MAX):
                error = await self._carry_out(await reader.readline())
                writer.write(msgspec.json.encode({"error": error}) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError):  # the peer has gone, says nothing, or too much
            pass
        finally:
            writer.close()

    async def _carry_out(self, line: bytes) -> str | None:
        """Carry out a command, and return the error as a sentence; None if there was none."""
        try:
            command = msgspec.json.decode(line, type=dict[str, int])
        except msgspec.MsgspecError as error:
            return f"the command is not JSON of a known form: {error}"
        if len(command) != 1 or not command.keys() <= self._commands.keys():
            return f"there are the commands {', '.join(self._commands)}; the line is {line[:100]!r}"
        ((name, node_id),) = command.items()
        try:
            async with self._one_at_a_time:
                await self._commands[name](node_id)
        except KohortError as error:
            return str(error)
        return None


def _is_own_user(peer: Any) -> bool:
    """Whether a process of the same user, or of root, is at the other end. Systems that do not tell have the directory only."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return True
    _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return user in (0, os.getuid())


def send_command(path: Path, name: str, node_id: int, timeout_s: float) -> None:
    """
    Send a command to a process and wait until it is carried out. Blocks.

    Raises:
        ConfigError: no process listens, or it refused the command.
    """
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            connection.sendall(msgspec.json.encode({name: node_id}) + b"\n")
            line = connection.makefile("rb").readline()
        except OSError as error:
            raise ConfigError(
                f"no process takes commands at {path}: {error.strerror or error}; only `kohort serve --brokers N` of the same "
                "user on this machine does, with N above 1"
            ) from error
    answer = msgspec.json.decode(line) if line.endswith(b"\n") else {"error": "the process ended"}
    if answer["error"] is not None:
        raise ConfigError(answer["error"])
