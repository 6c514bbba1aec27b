"""
A cleaner pass in a separate process: decoding all records of a large log takes seconds of processor time, which a thread would
take from appends and fetches.

The process reads one job as a line of JSON, writes one line for each cleaned segment and one for the result, and exits. It also
exits when its input ends, that is when its parent process has ended; unfinished files are named `.cleaned`.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NoReturn

import msgspec

from kohort.model.errors import CorruptError, StorageError
from kohort.runtime.timers.clock import SystemClock
from kohort.storage.cleaning.compaction import Report, compact
from kohort.storage.cleaning.job import CleanerJob, PassResult, SegmentGroup
from kohort.storage.processes import start_python

if TYPE_CHECKING:
    import subprocess

_ORPHANED = 3


class PassFailure(msgspec.Struct, frozen=True, tag=True):
    """The pass failed. `errno` is 0 if the content of a file is damaged."""

    errno: int
    reason: str


_encode = msgspec.json.encode
_decode_job = msgspec.json.Decoder(CleanerJob).decode
_decode_answer = msgspec.json.Decoder(SegmentGroup | PassResult | PassFailure).decode


class CleanerProcess:
    """Runs one process at a time, for the thread that calls `run`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._is_stopped = False

    def run(self, job: CleanerJob, report: Report) -> PassResult:
        """
        Run a pass; blocks.

        Raises:
            CorruptError: a batch is damaged.
            OSError: a file cannot be read or written, or the process was killed.
        """
        with self._lock:
            if self._is_stopped:
                raise InterruptedError("the store is being closed")
            process = self._process = start_python("-m", "kohort.storage.cleaning.process", answers=True)
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                with suppress(BrokenPipeError):
                    process.stdin.write(_encode(job) + b"\n")
                    process.stdin.flush()
                for line in process.stdout:
                    answer = _decode_answer(line)
                    if not isinstance(answer, SegmentGroup):
                        return _ended(answer)
                    report(answer)
            finally:
                with suppress(BrokenPipeError):
                    process.stdin.close()
        raise InterruptedError(f"the cleaner's process ended with code {process.returncode}")

    @property
    def id(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def cancel(self) -> None:
        """Kill the running process, if any. Any thread may call this."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def stop(self) -> None:
        """Kill the running process, if any, and start no other one. Any thread may call this."""
        with self._lock:
            self._is_stopped = True
        self.cancel()


def _ended(answer: PassResult | PassFailure) -> PassResult:
    if isinstance(answer, PassResult):
        return answer
    if answer.errno:
        raise OSError(answer.errno, answer.reason)
    raise CorruptError(answer.reason)


_WAIT_S_MAX: Final = 86_400.0
"""A lower rate than that of one piece a day is not kept: no thread can wait for centuries."""


class Throttler:
    """
    Limits bytes per second by waiting.

    Source: Kafka Throttler; log.cleaner.io.max.bytes.per.second.
    """

    def __init__(self, bytes_per_second: float, wait: Callable[[float], object]) -> None:
        self._bytes_per_second = bytes_per_second
        self._wait = wait
        self._begun_s = time.monotonic()
        self._bytes = 0

    def __call__(self, passed_bytes: int) -> None:
        if self._bytes_per_second <= 0:
            return
        self._bytes += passed_bytes
        ahead_s = self._bytes / self._bytes_per_second - (time.monotonic() - self._begun_s)
        if ahead_s > 0:
            self._wait(min(ahead_s, _WAIT_S_MAX))


def _answer(answer: SegmentGroup | PassResult | PassFailure) -> None:
    data = memoryview(_encode(answer) + b"\n")
    while data:
        data = data[os.write(1, data) :]


def _read_job() -> CleanerJob:
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(0, 1 << 20)
        if not more:
            os._exit(_ORPHANED)
        data += more
    return _decode_job(data)


def _watch_parent() -> None:
    while os.read(0, 1):
        pass
    os._exit(_ORPHANED)


def main() -> NoReturn:
    job = _read_job()
    threading.Thread(target=_watch_parent, daemon=True).start()
    try:
        done = compact(job, _answer, SystemClock(), pace=Throttler(job.bytes_per_second, time.sleep))
    except OSError as error:
        _answer(PassFailure(error.errno or 5, str(error)))
    except (StorageError, MemoryError) as error:
        _answer(PassFailure(0, str(error) or type(error).__name__))
    else:
        _answer(done)
    os._exit(0)


if __name__ == "__main__":
    main()
