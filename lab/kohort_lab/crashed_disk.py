"""
A model of the content of a disk after a crash.

Data written to a file since its last flush may be on the disk whole, in part, out of order, or not at all. The same holds for
names that were created, renamed and removed in a directory since its last flush. Flushed data is on the disk. These are the
guarantees of POSIX; real file systems give more.

`Disk.apply` takes the operations in order; `Disk.crash` returns the content of the disk after a power failure at that moment.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import TypeAlias, assert_never

ROOT = 0
"""The node of the root directory."""


@dataclass(frozen=True, slots=True)
class Made:
    """A file or directory was created."""

    node: int
    parent: int
    name: str
    is_directory: bool = False


@dataclass(frozen=True, slots=True)
class Wrote:
    """Bytes were written at a position of a file."""

    node: int
    position: int
    data: bytes

    def __repr__(self) -> str:
        return f"Wrote(node={self.node}, position={self.position}, size={len(self.data)})"


@dataclass(frozen=True, slots=True)
class Resized:
    """A file was truncated, or extended with zeros."""

    node: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Renamed:
    """A name was changed within a directory; a file of the new name was replaced."""

    parent: int
    name: str
    to: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A name was removed."""

    parent: int
    name: str


@dataclass(frozen=True, slots=True)
class Synced:
    """A file or a directory was flushed."""

    node: int


@dataclass(frozen=True, slots=True)
class Mark:
    """An event between system calls that a test noted, such as an acknowledgement."""

    value: object


Operation: TypeAlias = Made | Wrote | Resized | Renamed | Removed | Synced | Mark
Tree: TypeAlias = dict[str, bytes | None]
"""Content by path; None for a directory. A directory comes before what is in it."""


class Kept(StrEnum):
    """The part of unflushed data that is found after a crash."""

    ALL = "all"
    """All of it: the process was killed, the machine was not."""
    NONE = "none"
    TORN = "torn"
    """The first operations, and a part of the last of them."""
    SOME = "some"
    """Any of the operations, some of them in part."""
    ZEROS = "zeros"
    """Files have their sizes, with zeros in place of the data."""
    MIXED = "mixed"
    """A random choice of the above for each file and directory."""


_PLAIN = (Kept.ALL, Kept.NONE, Kept.TORN, Kept.SOME, Kept.ZEROS)


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Wrote | Resized] = field(default_factory=list)

    def sync(self) -> None:
        for operation in self.pending:
            _change(self.durable, operation)
        self.pending.clear()

    def crash(self, chance: Random, kept: Kept) -> bytes:
        if not self.pending or kept is Kept.NONE:
            return bytes(self.durable)
        found = bytearray(self.durable)
        for operation in _choose(self.pending, chance, kept):
            _change(found, operation)
        return bytes(found)


@dataclass(slots=True)
class _Directory:
    durable: dict[str, int] = field(default_factory=dict)
    present: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[Made | Renamed | Removed, int]] = field(default_factory=list)
    """Changes of names, with the node of each name."""

    def sync(self) -> None:
        self.durable = dict(self.present)
        self.pending.clear()

    def crash(self, chance: Random, kept: Kept) -> dict[str, int]:
        entries = dict(self.durable)
        if kept is Kept.ZEROS:
            kept = Kept.ALL
        for operation, node in _choose_names(self.pending, chance, kept):
            _rename(entries, operation, node)
        return entries


class Disk:
    """The current and the flushed state of files and directories."""

    def __init__(self, tree: Tree) -> None:
        """`tree` is the initial content, which is durable."""
        self._files: dict[int, _File] = {}
        self._directories = {ROOT: _Directory()}
        nodes = {"": ROOT}
        for path, content in tree.items():
            parent, _, name = path.rpartition("/")
            node = nodes[path] = len(nodes)
            directory = self._directories[nodes[parent]]
            directory.durable[name] = directory.present[name] = node
            if content is None:
                self._directories[node] = _Directory()
            else:
                self._files[node] = _File(bytearray(content))

    def apply(self, operation: Operation) -> None:
        match operation:
            case Wrote() | Resized():
                self._files[operation.node].pending.append(operation)
            case Synced(node):
                held = self._files.get(node) or self._directories[node]
                held.sync()
            case Made(node, parent, _, is_directory):
                if is_directory:
                    self._directories[node] = _Directory()
                else:
                    self._files[node] = _File()
                self._name(self._directories[parent], operation, node)
            case Renamed(parent, name) | Removed(parent, name):
                directory = self._directories[parent]
                self._name(directory, operation, directory.present[name])
            case Mark():
                pass
            case _:
                assert_never(operation)

    def _name(self, directory: _Directory, operation: Made | Renamed | Removed, node: int) -> None:
        directory.pending.append((operation, node))
        _rename(directory.present, operation, node)

    def crash(self, chance: Random, kept: Kept) -> Tree:
        """The content after a power failure now; `chance` makes the random choices."""
        tree: Tree = {}
        self._find(ROOT, "", chance, kept, tree)
        return tree

    def _find(self, node: int, prefix: str, chance: Random, kept: Kept, tree: Tree) -> None:
        for name, child in sorted(self._directories[node].crash(chance, _pick(chance, kept)).items()):
            path = prefix + name
            if child in self._directories:
                tree[path] = None
                self._find(child, path + "/", chance, kept, tree)
            else:
                tree[path] = self._files[child].crash(chance, _pick(chance, kept))


def _pick(chance: Random, kept: Kept) -> Kept:
    return chance.choice(_PLAIN) if kept is Kept.MIXED else kept


def _choose(pending: list[Wrote | Resized], chance: Random, kept: Kept) -> list[Wrote | Resized]:
    match kept:
        case Kept.TORN:
            count = chance.randint(1, len(pending))
            return [*pending[: count - 1], _tear(pending[count - 1], chance)]
        case Kept.SOME:
            some = [operation for operation in pending if chance.random() < 0.5]
            return [_tear(operation, chance) if chance.random() < 0.3 else operation for operation in some]
        case Kept.ZEROS:
            return [Wrote(it.node, it.position, bytes(len(it.data))) if isinstance(it, Wrote) else it for it in pending]
        case _:
            return pending


def _choose_names(
    pending: list[tuple[Made | Renamed | Removed, int]], chance: Random, kept: Kept
) -> list[tuple[Made | Renamed | Removed, int]]:
    match kept:
        case Kept.NONE:
            return []
        case Kept.TORN:
            return pending[: chance.randint(0, len(pending))]
        case Kept.SOME:
            return [entry for entry in pending if chance.random() < 0.5]
        case _:
            return pending


def _tear(operation: Wrote | Resized, chance: Random) -> Wrote | Resized:
    """The front or the back part of a write."""
    if isinstance(operation, Resized):
        return operation
    at = chance.randint(0, len(operation.data))
    if chance.random() < 0.5:
        return Wrote(operation.node, operation.position, operation.data[:at])
    return Wrote(operation.node, operation.position + at, operation.data[at:])


def _change(content: bytearray, operation: Wrote | Resized) -> None:
    end = operation.size_bytes if isinstance(operation, Resized) else operation.position + len(operation.data)
    if isinstance(operation, Wrote) and not operation.data:
        return
    if len(content) < end:
        content.extend(bytes(end - len(content)))
    if isinstance(operation, Wrote):
        content[operation.position : end] = operation.data
    else:
        del content[end:]


def _rename(entries: dict[str, int], operation: Made | Renamed | Removed, node: int) -> None:
    """Apply a change of a name; earlier changes of the name may be missing."""
    match operation:
        case Made(name=name):
            entries[name] = node
        case Removed(name=name):
            entries.pop(name, None)
        case Renamed(_, name, to):
            entries.pop(name, None)
            entries[to] = node


def read_tree(root: Path) -> Tree:
    """The content of a directory."""
    paths = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): None if path.is_dir() else path.read_bytes() for path in paths}


def write_tree(root: Path, tree: Tree) -> None:
    """Make a new directory with this content."""
    root.mkdir()
    for path, content in tree.items():
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
