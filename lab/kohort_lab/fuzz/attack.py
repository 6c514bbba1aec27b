"""Connections that send frames, read some of the answers, and go away in any state."""

import socket
import struct
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from kohort.client.addresses import Address
from kohort.wire.apis import ApiKey
from kohort_lab.fuzz.mutations import mutate_frame
from kohort_lab.fuzz.samples import Sampler

FRAMES_KEPT: Final = 400
"""The last frames of an attacker, for a report."""
_SEND_TIMEOUT_S: Final = 1.0
_ANSWER_TIMEOUT_S: Final = 60.0
"""The wait for the answer to a frame of the corpus: each of them is answered, or the connection is closed."""
_QUIET_S: Final = 0.02
"""The wait for the answer to another frame, which may have none."""
_READ_BYTES: Final = 1 << 16
_VALID_PROBABILITY: Final = 0.3
_CORPUS_PROBABILITY: Final = 0.02
_UNKNOWN_API_PROBABILITY: Final = 0.01
_RESET_PROBABILITY: Final = 0.1
_BURST_PROBABILITY: Final = 0.1
_QUIET_MAX: Final = 3
"""Frames of a connection that may remain without an answer, because a request before them waits."""
_RESET: Final = struct.pack("ii", 1, 0)


class Attack(threading.Thread):
    """
    One attacker: one connection after the other, each with some frames.

    Attributes:
        frames: the number of frames sent.
        connections: the number of connections opened.
        answered_bytes: what the broker has sent.
        recent: the last frames that were sent.
        failure: why the attacker has stopped early; it must not.
    """

    def __init__(
        self,
        address: Address,
        rng: Random,
        sampler: Sampler,
        apis: Sequence[tuple[ApiKey, int]],
        corpus: Sequence[bytes],
        may_go_on: Callable[[], bool],
    ) -> None:
        """
        Args:
            apis: the requests to send, with their versions.
            may_go_on: asked before every connection.
        """
        super().__init__(daemon=True)
        self.frames = self.connections = self.answered_bytes = 0
        self.recent: deque[bytes] = deque(maxlen=FRAMES_KEPT)
        self.sent_by_api: Counter[ApiKey] = Counter()
        self.failure: Exception | None = None
        self._address = address
        self._rng = rng
        self._sampler = sampler
        self._apis = apis
        self._corpus = corpus
        self._may_go_on = may_go_on

    def run(self) -> None:
        try:
            for frame in self._corpus:
                self._ask(frame)
            while self._may_go_on():
                self._connect([self._frame() for _ in range(self._rng.choice((1, 4, 16, 64)))])
        except Exception as error:  # noqa: BLE001 -- reported by the run
            self.failure = error

    def _frame(self) -> bytes:
        rng = self._rng
        if self._corpus and rng.random() < _CORPUS_PROBABILITY:
            return mutate_frame(rng.choice(self._corpus), rng)
        api, version = rng.choice(self._apis)
        if rng.random() < _UNKNOWN_API_PROBABILITY:
            api = rng.choice(list(ApiKey))
            version = rng.randint(api.oldest, api.newest)
        self.sent_by_api[api] += 1
        frame = self._sampler.request(api, version)
        return frame if rng.random() < _VALID_PROBABILITY else mutate_frame(frame, rng)

    def _ask(self, frame: bytes) -> None:
        """
        Send a frame on a new connection and wait for its answer.

        Raises:
            OSError: the broker does not accept a connection, or neither answers nor closes it.
        """
        with socket.create_connection(self._address, timeout=_ANSWER_TIMEOUT_S) as connection:
            self.connections += 1
            self.frames += 1
            self.recent.append(frame)
            try:
                connection.sendall(frame)
                self.answered_bytes += len(connection.recv(_READ_BYTES))
            except ConnectionError:
                pass

    def _connect(self, frames: Sequence[bytes]) -> None:
        """
        Send frames on a new connection until the broker closes it, one after the other or all at once.

        Raises:
            OSError: the broker does not accept a connection.
        """
        rng = self._rng
        with socket.create_connection(self._address, timeout=30) as connection:
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            is_burst = rng.random() < _BURST_PROBABILITY
            quiet = 0
            try:
                for frame in frames:
                    self.recent.append(frame)
                    self.frames += 1
                    connection.settimeout(_SEND_TIMEOUT_S)
                    connection.sendall(frame)
                    if not is_burst and not self._read(connection):
                        quiet += 1
                    if quiet == _QUIET_MAX:
                        break
                while is_burst and self._read(connection):
                    pass
            except OSError:  # the broker has closed the connection, or does not read
                pass
            if rng.random() < _RESET_PROBABILITY:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    def _read(self, connection: socket.socket) -> bool:
        """
        Read a part of the answers; whether there was any.

        Raises:
            ConnectionError: the broker has closed the connection.
        """
        connection.settimeout(_QUIET_S)
        try:
            received = connection.recv(_READ_BYTES)
        except TimeoutError:
            return False
        if not received:
            raise ConnectionAbortedError
        self.answered_bytes += len(received)
        return True
