"""
A layer between the storage and the system calls: it records every call that changes a file, fails chosen calls, and can hold a
thread before a call.

    with FaultyFiles(data_dir) as files:
        ...  # a store on data_dir
    disk = files.disk()
    for operation in files.operations:
        disk.apply(operation)
        tree = disk.crash(Random(seed), Kept.SOME)  # what a crash here leaves behind

Files are not flushed; the flushes are recorded. Calls on paths outside the directory pass through.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from errno import EIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kohort.storage.files import syscalls
from kohort_lab.crashed_disk import (
    ROOT,
    Disk,
    Made,
    Mark,
    Operation,
    Removed,
    Renamed,
    Resized,
    Synced,
    Tree,
    Wrote,
    read_tree,
)

Refuse = Callable[[str, Path], int | None]
"""Called with the name and the path of a call; returns the errno that the call fails with, or None."""

_WAIT_SECONDS_MAX = 120.0


class FaultyFiles:
    """
    A context that records the system calls of all stores under one directory. One at a time in a process.

    Attributes:
        operations: the recorded operations, in order.
        refuse: called before every call; may be replaced at any time.
    """

    def __init__(self, root: Path, *, refuse: Refuse = lambda _call, _path: None) -> None:
        self.root = root
        self._prefix = f"{root}/"
        self.operations: list[Operation] = []
        self.refuse = refuse
        self._before: Tree = read_tree(root) if root.exists() else {}
        self._nodes: dict[Path, int] = {root: ROOT}
        for path in self._before:
            self._nodes[root / path] = len(self._nodes)
        self._next_node = len(self._nodes)
        self._open: dict[int, Path] = {}
        self._descriptors: dict[int, int] = {}
        """Nodes by file descriptor: a name may be given to another file while the descriptor is open."""
        self._positions: dict[int, int] = {}
        """Where the next `write` goes, by file descriptor; absent: at the end."""
        self._sizes = {
            self._nodes[root / path]: len(content) for path, content in self._before.items() if content is not None
        }
        self._lock = threading.RLock()
        self._gates: dict[str, tuple[str | None, threading.Event]] = {}
        self._arrived = threading.Semaphore(0)
        self._originals: dict[str, Any] = {}

    def __enter__(self) -> Self:
        for name in syscalls.CHANGING:
            self._originals[name] = getattr(syscalls, name)
            setattr(syscalls, name, getattr(self, f"_{name}"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, gate in self._gates.values():
            gate.set()
        for name, original in self._originals.items():
            setattr(syscalls, name, original)

    def disk(self) -> Disk:
        """The disk before the first operation."""
        return Disk(self._before)

    def mark(self, value: object) -> None:
        """Record an event between the calls."""
        with self._lock:
            self.operations.append(Mark(value))

    def hold(self, thread: str, *, before: str | None = None) -> None:
        """Hold the thread of this name before its next call, or before its next one of this name (as `refuse` gets it)."""
        self._gates[thread] = before, threading.Event()

    def await_held(self) -> None:
        """Block until a held thread has come to a call."""
        assert self._arrived.acquire(timeout=_WAIT_SECONDS_MAX), "no thread that is held came to a call"

    def release(self, thread: str) -> None:
        self._gates.pop(thread)[1].set()

    # The calls

    def _is_ours(self, path: Path) -> bool:
        """Whether a path is under the directory; compared as text, because pathlib parses paths on each comparison."""
        return str(path).startswith(self._prefix) or path == self.root

    def _enter(self, call: str, path: Path) -> None:
        before, gate = self._gates.get(threading.current_thread().name, (None, None))
        if gate is not None and before in (None, call) and not gate.is_set():
            self._arrived.release()
            assert gate.wait(_WAIT_SECONDS_MAX), "a thread that is held was never released"
        if self._is_ours(path) and (code := self.refuse(call, path)) is not None:
            raise OSError(code, os.strerror(code), str(path))

    def _open_file(self, path: Path | str, flags: int, mode: int = 0o777) -> int:
        path = Path(path)
        self._enter("open", path)
        with self._lock:
            is_ours = self._is_ours(path)
            is_new = is_ours and path not in self._nodes
            fd: int = self._originals["open_file"](path, flags, mode)
            self._open.pop(fd, None)
            self._positions.pop(fd, None)
            if not is_ours:
                return fd
            if is_new:
                node = self._add(path)
                self._sizes[node] = 0
                self._note(Made(node, self._nodes[path.parent], path.name))
            elif flags & os.O_TRUNC:
                self._sizes[self._nodes[path]] = 0
                self._note(Resized(self._nodes[path], 0))
            self._open[fd] = path
            self._positions[fd] = -1 if flags & os.O_APPEND else 0
            self._descriptors[fd] = self._nodes[path]
            return fd

    @contextmanager
    def _changing(self, call: str, fd: int) -> Iterator[int | None]:
        """Enter a call that changes an open file, under the lock; the value is the node, None for a file of others."""
        path = self._open.get(fd)
        if path is not None:
            self._enter(call, path)
        with self._lock:
            yield None if path is None else self._descriptors[fd]

    def _pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        with self._changing("write", fd) as node:
            written: int = self._originals["pwrite"](fd, data, position)
            if node is not None:
                self._wrote(node, position, bytes(memoryview(data)[:written]))
            return written

    def _pwritev(self, fd: int, pieces: Sequence[bytes | bytearray | memoryview], position: int) -> int:
        return self._pwrite(fd, b"".join(pieces), position)

    def _write(self, fd: int, data: bytes | bytearray | memoryview) -> int:
        with self._changing("write", fd) as node:
            written: int = self._originals["write"](fd, data)
            if node is not None:
                position = self._positions[fd]
                if position < 0:
                    position = self._sizes[node]
                else:
                    self._positions[fd] = position + written
                self._wrote(node, position, bytes(memoryview(data)[:written]))
            return written

    def _wrote(self, node: int, position: int, data: bytes) -> None:
        self._sizes[node] = max(self._sizes[node], position + len(data))
        self._note(Wrote(node, position, data))

    def _truncate(self, fd: int, size_bytes: int) -> None:
        with self._changing("truncate", fd) as node:
            self._originals["truncate"](fd, size_bytes)
            if node is not None:
                self._sizes[node] = size_bytes
                self._note(Resized(node, size_bytes))

    def _allocate(self, fd: int, offset: int, size_bytes: int) -> None:
        with self._changing("allocate", fd) as node:
            os.ftruncate(fd, max(os.fstat(fd).st_size, offset + size_bytes))
            if node is not None and offset + size_bytes > self._sizes[node]:
                self._sizes[node] = offset + size_bytes
                self._note(Resized(node, offset + size_bytes))

    def _fsync(self, fd: int) -> None:
        with self._changing("sync", fd) as node:
            if node is not None:
                self._note(Synced(node))
        if node is None:
            self._originals["fsync"](fd)

    _fdatasync = _fsync

    def _replace(self, source: Path, to: Path) -> None:
        self._enter("rename", source)
        with self._lock:
            self._originals["replace"](source, to)
            if self._is_ours(source):
                assert source.parent == to.parent, "a rename within one directory is all that is known here"
                self._nodes[to] = self._nodes.pop(source)
                prefix = f"{source}/"
                for path in [path for path in self._nodes if str(path).startswith(prefix)]:
                    self._nodes[to / path.relative_to(source)] = self._nodes.pop(path)
                self._note(Renamed(self._nodes[source.parent], source.name, to.name))

    def _unlink(self, path: Path) -> None:
        self._remove("unlink", path)

    def _remove_directory(self, path: Path) -> None:
        self._remove("remove_directory", path)

    def _remove(self, call: str, path: Path) -> None:
        self._enter(call, path)
        with self._lock:
            self._originals[call](path)
            if self._is_ours(path):
                del self._nodes[path]
                self._note(Removed(self._nodes[path.parent], path.name))

    def _make_directory(self, path: Path, mode: int = 0o777) -> None:
        self._enter("mkdir", path)
        with self._lock:
            self._originals["make_directory"](path, mode)
            if self._is_ours(path):
                self._note(Made(self._add(path), self._nodes[path.parent], path.name, is_directory=True))

    def _add(self, path: Path) -> int:
        node = self._nodes[path] = self._next_node
        self._next_node += 1
        return node

    def _note(self, operation: Operation) -> None:
        self.operations.append(operation)


def fail_on(call: str, suffix: str, *, code: int = EIO) -> Refuse:
    """Fail every call of this name on paths with this suffix, such as `.log` or the directory of a partition."""
    return lambda name, path: code if name == call and str(path).endswith(suffix) else None
