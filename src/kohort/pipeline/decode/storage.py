"""
Access to segment files, local or on any file system of Arrow (`s3://`, `gs://`, `abfs://`, `hdfs://`, `file://`).

A local file is mapped. A remote file is copied in pieces into an unnamed temporary file, which is mapped, so the memory does
not depend on its size.

Source: pyarrow.fs.FileSystem.from_uri.
"""

import mmap
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from kohort.model.errors import ConfigError

_COPY_BYTES = 8 << 20
_BROKERS = re.compile(r"[\w.\-\[\]:]+:[0-9]{1,5}(,[\w.\-\[\]:]+:[0-9]{1,5})*")
"""A bootstrap list without a scheme."""
_S3A = re.compile("^s3[an]://")
"""Hadoop's names of S3."""
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)
"""None on systems without it."""


class Found(NamedTuple):
    """A file: its name, path, size, and a number that changes when the file is replaced."""

    name: str
    path: str
    size_bytes: int
    identity: int


def is_remote(path: str) -> bool:
    """Whether a path is a URI."""
    return "://" in path


def directories(root: str) -> Iterator[tuple[str, str]]:
    """
    The directories in a directory: names and paths.

    Raises:
        ConfigError: there is no such directory, or it cannot be read.
    """
    if is_remote(root):
        yield from ((info.base_name, path) for info, path in _listed(root) if info.type.name == "Directory")
        return
    if not Path(root).is_dir():
        advice = "name the data directory of a broker (Kafka: log.dirs)"
        if _BROKERS.fullmatch(root):
            advice = f"write kafka://{root} for a running cluster"
        elif "," in root:
            advice = (
                "a source is one directory. If log.dirs has several, make a directory with links to all partition directories"
                f" (ln -s {' '.join(f'{one.strip()}/*-[0-9]*' for one in root.split(','))} DIR) and name it"
            )
        raise ConfigError(f"{root} is not a directory; {advice}")
    try:
        with os.scandir(root) as entries:
            yield from ((entry.name, entry.path) for entry in entries if entry.is_dir())
    except OSError as exc:
        raise ConfigError(f"{root} cannot be read: {exc.strerror}") from exc


def files(directory: str, suffixes: tuple[str, ...]) -> Iterator[Found]:
    """The files in a directory whose names end in one of some suffixes, without files that are removed meanwhile."""
    if is_remote(directory):
        for info, path in _listed(directory):
            if info.is_file and info.base_name.endswith(suffixes):
                yield Found(info.base_name, path, info.size, info.mtime_ns or 0)
        return
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(suffixes))
    except FileNotFoundError:
        return
    except OSError as exc:
        raise ConfigError(f"{directory} cannot be read: {exc.strerror}") from exc
    for name in names:
        path = os.path.join(directory, name)
        try:
            stat = os.stat(path)
        except FileNotFoundError:
            continue
        yield Found(name, path, stat.st_size, stat.st_ino)


def mapped(path: str) -> Any:
    """
    The bytes of a file.

    Raises:
        FileNotFoundError: the file was removed.
        ConfigError: the file cannot be read.
    """
    if not is_remote(path):
        try:
            with Path(path).open("rb") as file:
                return _map(file)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise ConfigError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    with tempfile.TemporaryFile(prefix="kohort-segment-") as copy:
        _download(path, copy)
        return _map(copy)


def release(data: Any, begin: int, end: int) -> None:
    """
    Release the pages of a part of a mapped file; they are read again on access. Other buffers are left alone.

    Otherwise the system keeps every page that was read while the file is mapped.
    """
    if isinstance(data, mmap.mmap) and _DONTNEED is not None:
        first = begin - begin % mmap.PAGESIZE
        if end > first:
            data.madvise(_DONTNEED, first, end - first)


def _map(file: IO[bytes]) -> Any:
    # An empty file cannot be mapped.
    size = file.seek(0, 2)
    return mmap.mmap(file.fileno(), size, prot=mmap.PROT_READ) if size else b""


def _opened(uri: str) -> tuple[Any, str]:
    """The file system of a URI, and the path in it."""
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    try:
        found: tuple[Any, str] = FileSystem.from_uri(_S3A.sub("s3://", uri))
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise ConfigError(f"{uri} cannot be opened: {exc}") from exc
    return found


def _listed(uri: str) -> Iterator[tuple[Any, str]]:
    from pyarrow.fs import FileSelector

    system, path = _opened(uri)
    base, _, query = uri.partition("?")
    try:
        found = system.get_file_info(FileSelector(path))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{uri} cannot be read: {exc}") from exc
    for info in found:
        yield info, f"{base.rstrip('/')}/{info.base_name}" + (f"?{query}" if query else "")


def _download(uri: str, copy: IO[bytes]) -> None:
    system, path = _opened(uri)
    try:
        with system.open_input_stream(path) as stream:
            while piece := stream.read(_COPY_BYTES):
                copy.write(piece)
        copy.flush()
    except FileNotFoundError:
        raise
    except OSError as exc:
        raise ConfigError(f"{uri} cannot be read: {exc}") from exc
