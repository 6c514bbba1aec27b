"""A broker as a process of its own, that can be killed without a word, and a blocking connection to it."""

import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kohort.wire.apis import API_KEYS
from kohort.wire.encoders import request_encoder
from kohort.wire.readers import response_reader

KOHORT: Final = str(Path(sys.executable).with_name("kohort"))
WAIT_SECONDS_MAX: Final = 120.0
_KEEPS_EVERYTHING: Final = ("log.retention.ms=-1",)
"""What writers write is old, and what is looked for must not have expired: retention begins 30 s after a start."""
_PORT = re.compile(r"\bport=(\d+)")


class Broker:
    """`kohort serve` on one data directory, started again and again; each time on another free port."""

    def __init__(self, data_dir: Path, *, flush: str, settings: tuple[str, ...] = ()) -> None:
        self._command = [KOHORT, "serve", "--host", "127.0.0.1", "--port", "0", "--flush", flush]
        self._command += ["--data-dir", str(data_dir)]
        for setting in (*_KEEPS_EVERYTHING, *settings):
            self._command += ["--set", setting]
        self._stderr = data_dir.with_name("stderr")
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()

    def spawn(self) -> None:
        """Start, and wait for nothing."""
        assert self._process is None
        with self._stderr.open("a") as stderr:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def start(self) -> None:
        """Start, and wait until it is ready."""
        self.spawn()
        assert self._process is not None
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        port = _PORT.search(ready)
        assert port is not None, f"the broker did not become ready: {ready}{self.told()}"
        self.port = int(port[1])

    def lives_for(self, seconds: float) -> bool:
        """Whether the process is still there after so long."""
        assert self._process is not None
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> None:
        """SIGKILL: no handler runs, nothing that is in the process's memory is written."""
        assert self._process is not None
        self._process.kill()
        self._reap()

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        status = self._process.wait(WAIT_SECONDS_MAX)
        self._process.stdout.close()
        self._process = None
        return status

    def told(self) -> str:
        """The end of its logs, of all starts."""
        return self._stderr.read_text()[-4000:]


class Connection:
    """
    Requests over one socket, several in flight if wanted.

    Raises:
        ConnectionError: the broker has gone.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS_MAX)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()

    def send(self, api_key: int, version: int, request: Any) -> None:
        self._socket.sendall(request_encoder(api_key, version)(1, "crash", request))

    def receive(self, api_key: int, version: int) -> Any:
        size = self._file.read(4)
        frame = self._file.read(int.from_bytes(size, "big")) if len(size) == 4 else b""
        if not frame or len(frame) != int.from_bytes(size, "big"):
            raise ConnectionResetError("the broker has gone")
        return response_reader(api_key, version)(frame, 4 + API_KEYS[api_key].response_header_version(version))

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        self.send(api_key, version, request)
        return self.receive(api_key, version)


def eventually(attempt: Any, what: str) -> Any:
    """What `attempt` returns as soon as it is not None."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while time.monotonic() < deadline:
        found = attempt()
        if found is not None:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited {WAIT_SECONDS_MAX:g} seconds for {what}")
