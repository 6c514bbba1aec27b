"""
The log: one line for each event on stderr, as key=value text or JSON.

A thread writes the lines, so a reader of stderr that stops reading never stops the broker. The lines that wait for the thread
are bounded; further lines are dropped and counted, and a line says how many as soon as there is room. If the process has no
memory left, a line says so: some memory is reserved for it.
"""

import logging
import os
import re
import resource
import selectors
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from types import TracebackType
from typing import Final, TextIO, TypeAlias

from kohort.model.limits import LOG_WAITING_BYTES_MAX
from kohort.model.text import printable, printable_json, printable_lines

FLUSH_SECONDS_MAX: Final = 1.0
"""How long a flush, and therefore the end of the process, waits for the reader of the log."""
REPEATS_MAX: Final = 10
REPEATS_SECONDS: Final = 10.0
CLIENTS_MAX: Final = 1_000
MEMORY_SECONDS: Final = 1.0
"""The shortest time between two lines about a lack of memory."""
_RESERVE_BYTES: Final = 4 * 1024 * 1024
"""Address space for the line about a lack of memory. Nothing is written to it, so it takes no memory."""
_ARGUMENT: Final = re.compile(r"%[^%a-zA-Z]*[a-zA-Z]")
"""A conversion of a format."""
_ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class KeyValueFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO kohort.storage log.recovered partition=a-0 bytes=12`."""

    converter = staticmethod(time.gmtime)

    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the name in logging
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 -- as above
        return printable_lines(super().formatException(ei))


class JsonFormatter(logging.Formatter):
    """
    One JSON object for each line: time, level, logger, event, and the fields of the event by name. The format of a record names
    the fields, whatever its arguments contain.

    A record with the attribute `is_text` (`extra={"is_text": True}`) is a sentence, which is the event as a whole.
    """

    def format(self, record: logging.LogRecord) -> str:
        event, *pairs = (record.getMessage(),) if getattr(record, "is_text", False) else _words(record)
        fields: dict[str, object] = {
            "time_ms": int(record.created * 1000),
            "level": record.levelname,
            "logger": record.name,
            "event": event,
        }
        last = None
        for pair in pairs:
            name, separator, value = pair.partition("=")
            if separator and name.isidentifier():
                fields[name] = value
                last = name
            elif last is not None:
                # A value with spaces ends at the next name.
                fields[last] = f"{fields[last]} {pair}"
            else:
                fields["event"] = f"{fields['event']} {pair}"
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        from json import dumps  # imported late: a start with lines of text does without it

        return printable_json(dumps(fields, ensure_ascii=False))


def _words(record: logging.LogRecord) -> Iterator[str]:
    """Yield the words of a format, complete with its arguments. An argument alone (`%s`) has words of its own, as fields."""
    if not isinstance(record.args, tuple):
        yield from record.getMessage().split(" ")
        return
    arguments = iter(record.args)
    for word in str(record.msg).split(" "):
        needed = tuple(islice(arguments, len(_ARGUMENT.findall(word))))
        text = word % needed if record.args else word
        yield from text.split(" ") if word == "%s" else (text,)


class RepeatLimit(logging.Filter):
    """
    Lets at most `REPEATS_MAX` lines of one kind about one client pass in `REPEATS_SECONDS`.

    Concerns records with an attribute `client` (`extra={"client": host}`), because a client can cause as many of them as it
    likes. The next line that passes has the number of its predecessors that did not.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._windows: OrderedDict[tuple[str, str], list[float]] = OrderedDict()
        """By kind and client: the start of the window, and how many lines passed and were held back in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        client = getattr(record, "client", None)
        if client is None:
            return True
        now = self._now()
        window = self._windows.setdefault((str(record.msg), client), [now, 0, 0])
        self._windows.move_to_end((str(record.msg), client))
        if len(self._windows) > CLIENTS_MAX:
            self._windows.popitem(last=False)
        if now - window[0] >= REPEATS_SECONDS:
            if window[2]:
                record.msg = f"{record.msg} suppressed={window[2]:.0f}"
            window[:] = [now, 0, 0]
        is_passed = window[1] < REPEATS_MAX
        window[1 if is_passed else 2] += 1
        return is_passed


class LogWriter(logging.Handler):
    """
    Formats records on the thread that logs, and writes the lines on a thread of its own.

    Args:
        bytes_max: the size of the lines that wait to be written; a line beyond it is dropped.

    Attributes:
        dropped: how many lines were dropped.
    """

    def __init__(self, stream: TextIO, *, bytes_max: int = LOG_WAITING_BYTES_MAX) -> None:
        super().__init__()
        self._stream = stream
        self._bytes_max = bytes_max
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        """Guards all that follows."""
        self._waiting_bytes = 0
        self._unsaid = 0
        """Dropped lines of which no line has been written."""
        self._thread: threading.Thread | None = None
        self.dropped = 0
        self._reserve: bytearray | None = bytearray(_RESERVE_BYTES)
        self._lacked_at = -MEMORY_SECONDS

    def start(self) -> None:
        """Start the thread, which takes 8 MB of address space: later there may be none. Without a call, the first line does."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kohort-log", daemon=True)
                self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and isinstance(record.exc_info[1], MemoryError):
            self._say_lack(record)
            return
        try:
            line = self.format(record)
        except MemoryError:
            self._say_lack(record)
            return
        except Exception:  # noqa: BLE001 -- a line that cannot be formatted is logging's own affair
            self.handleError(record)
            return
        self.write_line(line)

    def _say_lack(self, record: logging.LogRecord) -> None:
        """Say that there is no memory left, once in a while, without the traceback, which needs memory."""
        now = time.monotonic()
        if now - self._lacked_at < MEMORY_SECONDS:
            return
        self._lacked_at = now
        self._reserve = None
        arguments = (record.getMessage(), record.exc_info[1] if record.exc_info else None, _memory())
        message = "memory.exhausted during=%r error=%r hint=%r"
        self.write_line(self.format(logging.LogRecord(record.name, logging.ERROR, "", 0, message, arguments, None)))
        try:
            self._reserve = bytearray(_RESERVE_BYTES)
        except MemoryError:
            self._lacked_at = now + 10 * MEMORY_SECONDS

    def write_line(self, text: str) -> None:
        """Write a line as it is, after the lines before it."""
        line = text.encode("utf-8", "backslashreplace") + b"\n"
        with self._changed:
            if self._waiting_bytes + len(line) > self._bytes_max:
                self.dropped += 1
                self._unsaid += 1
                return
            self._waiting_bytes += len(line)
            self._lines.append(line)
            self.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until the lines are written, for a moment at most."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes and not self._unsaid, FLUSH_SECONDS_MAX)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._unsaid:
                    self._changed.wait()
                lines, unsaid = b"".join(self._lines), self._unsaid
                self._lines.clear()
            size_bytes = len(lines)
            if unsaid:
                lines += self._dropped_line(unsaid)
            self._write(lines)
            with self._changed:
                self._waiting_bytes -= size_bytes
                self._unsaid -= unsaid
                self._changed.notify_all()

    def _dropped_line(self, count: int) -> bytes:
        record = logging.LogRecord("kohort.server", logging.WARNING, "", 0, "logs.dropped lines=%d", (count,), None)
        return self.format(record).encode() + b"\n"

    def _write(self, data: bytes) -> None:
        """Write past the buffer of the stream: the interpreter could not end while a thread is in it."""
        try:
            descriptor = self._stream.fileno()
        except (OSError, ValueError):  # a stream in memory, which may be closed
            with suppress(ValueError):
                self._stream.write(data.decode())
            return
        try:
            while data:
                try:
                    data = data[os.write(descriptor, data) :]
                except BlockingIOError:
                    with selectors.DefaultSelector() as selector:
                        selector.register(descriptor, selectors.EVENT_WRITE)
                        selector.select()
        except OSError:  # nobody will ever read it
            with self._changed:
                self.dropped += data.count(b"\n")


def _memory() -> str:
    """How much memory the process has, and may have, as a sentence."""
    usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1 if sys.platform != "darwin" else 1024)
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    bound = "without a limit of its own" if limit == resource.RLIM_INFINITY else f"of {limit >> 20} MB of address space"
    return (
        f"the process had up to {usage >> 10} MB of memory, {bound}, and gets no more: raise the limit (ulimit -v, the "
        "container's), or keep less: with --memory all records stay in memory until retention or a deletion removes them"
    )


@contextmanager
def logs_on_stderr(level: str, form: str) -> Iterator[LogWriter]:
    """Log to stderr, and to nothing else, until the block ends. `form` is "text" or "json"."""
    writer = LogWriter(sys.stderr)
    writer.setFormatter(JsonFormatter() if form == "json" else KeyValueFormatter())
    writer.addFilter(RepeatLimit())
    writer.start()
    root = logging.getLogger()
    handlers, level_before = root.handlers, root.level
    root.handlers = [writer]
    root.setLevel(level.upper())
    # asyncio's own messages concern the implementation, not the operator.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    try:
        yield writer
    finally:
        writer.flush()
        root.handlers = handlers
        root.setLevel(level_before)
