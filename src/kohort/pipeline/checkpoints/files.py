"""
Access to the files of checkpoints: local, in a file system of Arrow (`s3://`, `gs://`, `abfs://`), or in one of Hadoop through
Spark, with Spark's connectors and credentials. Nothing is ever written.

Source: Spark's BinaryFileFormat.
"""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kohort.model.errors import ConfigError
from kohort.pipeline.decode.storage import directories, files, is_remote, mapped


class Content(NamedTuple):
    """The bytes of a file, and when it was last written."""

    data: bytes
    modified_ms: int


class Files(Protocol):
    """Readers of the files of checkpoints."""

    def names(self, directory: str) -> Iterable[str]:
        """
        Return the names of the files in a directory; none if there is no such directory.

        Raises:
            ConfigError: it cannot be read.
        """

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        """
        Return the files of some names, without those that were removed meanwhile.

        Raises:
            ConfigError: one cannot be read.
        """

    def directories(self, directory: str) -> list[str]:
        """
        Return the names of the directories in a directory that may be checkpoints.

        Raises:
            ConfigError: there is no such directory, or it cannot be read.
        """


class LocalFiles:
    """The files of this machine."""

    def names(self, directory: str) -> Iterator[str]:
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    yield entry.name
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as exc:
            raise ConfigError(f"{directory} cannot be read: {exc.strerror}") from exc

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        found = {}
        for name in names:
            path = os.path.join(directory, name)
            try:
                with suppress(FileNotFoundError), Path(path).open("rb") as file:
                    found[name] = Content(file.read(), os.fstat(file.fileno()).st_mtime_ns // 1_000_000)
            except OSError as exc:
                raise ConfigError(f"{path} cannot be read: {exc.strerror}") from exc
        return found

    def directories(self, directory: str) -> list[str]:
        if not Path(directory).is_dir():
            raise ConfigError(f"{directory} is no checkpoint: there is no such directory")
        return [name for name, _ in directories(directory)]


class ArrowFiles:
    """The files of an object store, by Arrow's file systems."""

    def names(self, directory: str) -> list[str]:
        return list(self._modified(directory))

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        found = {}
        base, mark, query = directory.partition("?")
        modified = self._modified(directory) if names else {}
        for name in modified.keys() & set(names):
            with suppress(FileNotFoundError):
                data = bytes(mapped(f"{base.rstrip('/')}/{name}{mark}{query}"))
                found[name] = Content(data, modified[name] // 1_000_000)
        return found

    def _modified(self, directory: str) -> dict[str, int]:
        """Return the files of a directory, and when they were written, in nanoseconds."""
        try:
            return {one.name: one.identity for one in files(directory, ("",))}
        except ConfigError as exc:
            # Some file systems know empty directories, and others none.
            if isinstance(exc.__cause__, FileNotFoundError):
                return {}
            raise

    def directories(self, directory: str) -> list[str]:
        return [name for name, _ in directories(directory)]


class HadoopFiles:
    """The files of any file system of Spark, whose source `binaryFile` lists and reads them, also by Spark Connect."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def names(self, directory: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self._paths(directory)]

    def read(self, directory: str, names: Collection[str]) -> dict[str, Content]:
        # An object store is asked several times for each path that is named, and once for some hundred files of a directory.
        rows = self._rows(directory, "content", names=names) if names else ()
        return {path.rpartition("/")[2]: Content(bytes(data), modified_ms) for path, modified_ms, data in rows}

    def directories(self, directory: str) -> list[str]:
        found = [path.rsplit("/", 2)[1] for path in self._paths(f"{directory}/*/metadata")]
        if not found and not self._paths(directory):
            raise ConfigError(f"{directory} is no checkpoint: Spark finds no files in it")
        return found

    def _paths(self, path: str) -> list[str]:
        return [found for found, *_ in self._rows(path)]

    def _rows(self, path: str, *columns: str, names: Collection[str] = ()) -> list[Any]:
        """Return path, time and more of the files of a path, or of those with some names; none if there are no files."""
        try:
            source = self._spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
            if names:
                source = source.option("pathGlobFilter", f"{{{','.join(sorted(names))}}}")
            frame = source.load(path)
            return list(frame.selectExpr("path", "unix_millis(modificationTime)", *columns).collect())
        except Exception as exc:  # Spark has an exception class for each way to run.
            if "PATH_NOT_FOUND" in str(exc):
                return []
            raise ConfigError(f"{path} cannot be read: {str(exc).splitlines()[0]}") from exc


def files_of(path: str, session: Any) -> Files:
    """Return how a path is read: local files by this process, others by Spark, or by Arrow where there is no Spark."""
    if not is_remote(path):
        return LocalFiles()
    if session is None:
        return ArrowFiles()
    from kohort.pipeline.engines.dispatch import is_local

    return ArrowFiles() if is_local(session) else HadoopFiles(session)
