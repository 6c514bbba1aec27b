"""
Published tables in an object store (`s3://`, `gs://`, `abfs://`), or in a directory as `file://`, through Arrow's file systems.

The layout is that of a published directory without the kept rows: `current.json` and `versions/<number>/`. A version is written
beside the current one, then the pointer is replaced: one object, which a store replaces atomically, or a rename. Readers see
one version or the other. A store numbers its own versions, so that files of the current one are never overwritten.

Source: pyarrow.fs.FileSystem.from_uri.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs.pointer import FORMAT, POINTER, VERSIONS, Published, parse_pointer
from kohort.pipeline.sources.live import is_live
from kohort.pipeline.sources.postgres.address import is_database

_COPY_BYTES = 8 << 20
_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "file")


@dataclass(frozen=True, slots=True)
class Store:
    """A directory in an Arrow file system (`system`, a pyarrow.fs.FileSystem)."""

    uri: str
    system: Any
    path: str

    def at(self, *names: str) -> str:
        return "/".join((self.path.rstrip("/"), *names))

    def text(self, name: str) -> str | None:
        """Read a small object; None if there is none."""
        from pyarrow.fs import FileType

        if self.system.get_file_info(self.at(name)).type != FileType.File:
            return None
        with self.system.open_input_stream(self.at(name)) as stream:
            return bytes(stream.read()).decode()

    def replace(self, name: str, text: str) -> None:
        """Replace an object atomically."""
        from pyarrow.fs import LocalFileSystem

        is_renamed = isinstance(self.system, LocalFileSystem)
        written = self.at(f".{name}.new" if is_renamed else name)
        with self.system.open_output_stream(written) as stream:
            stream.write(text.encode())
        if is_renamed:
            self.system.move(written, self.at(name))

    def sizes(self, *names: str) -> dict[str, int]:
        """Return the sizes of the files below a directory, by relative path; empty if it is missing."""
        from pyarrow.fs import FileSelector, FileType

        base = self.at(*names)
        found = self.system.get_file_info(FileSelector(base, recursive=True, allow_not_found=True))
        return {one.path.removeprefix(base).lstrip("/"): one.size for one in found if one.type == FileType.File}


@dataclass(frozen=True, slots=True)
class Stored:
    """The result of publishing: the store's version, the bytes written, and whether anything was new."""

    version: int
    bytes_written: int
    is_new: bool


def is_store(directory: str | Path) -> bool:
    """Tell whether a location is reached through Arrow's file systems."""
    return "://" in str(directory) and not is_live(str(directory)) and not is_database(str(directory))


def opened(uri: str) -> Store:
    """
    Open a store.

    Raises:
        ConfigError: it cannot be opened, or its file system cannot replace the pointer atomically.
    """
    import pyarrow as pa
    from pyarrow.fs import FileSystem

    scheme = uri.partition("://")[0]
    if scheme not in _SCHEMES:
        raise ConfigError(f"{uri}: tables can be published to {', '.join(f'{one}://' for one in _SCHEMES)} alone")
    try:
        return Store(uri, *FileSystem.from_uri(uri))
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise ConfigError(f"{uri} cannot be opened: {exc}") from exc


def current(store: Store) -> Published | None:
    """
    Return the current version; None if nothing was published.

    Raises:
        ConfigError: the pointer is malformed, or the store does not answer.
    """
    try:
        text = store.text(POINTER)
    except OSError as exc:
        raise ConfigError(f"{store.uri} cannot be read: {exc}") from exc
    return None if text is None else parse_pointer(store.uri, text)


def publish(store: Store, made: Published) -> Stored:
    """
    Copy a locally published version into the store, and make it the current one. Only one run at a time may publish into a
    store; there is no lock.

    Raises:
        ConfigError: the store holds tables of another source, or cannot be written.
    """
    before = current(store)
    if before is not None and before.source != made.source:
        raise ConfigError(f"{store.uri} holds tables of {before.source}; name another place")
    if before is not None and before.fingerprint == json.loads(json.dumps(made.fingerprint)):
        return Stored(before.version, 0, is_new=False)
    version = 1 if before is None else before.version + 1
    try:
        _remove_others(store, keep=None if before is None else before.version)
        written = _copy(store, made.path, version, None if before is None else before.version)
        pointer = {"format": FORMAT, "version": version, "source": made.source}
        store.replace(POINTER, json.dumps(pointer | {"fingerprint": made.fingerprint}))
    except OSError as exc:
        raise ConfigError(f"{store.uri} cannot be written: {exc}") from exc
    return Stored(version, written, is_new=True)


def table(store: Store, found: Published, name: str) -> Any:
    """Return a table of a version as a dataset; None if there is none."""
    import pyarrow.dataset as ds

    base = (VERSIONS, str(found.version), name)
    files = [store.at(*base, file) for file in sorted(store.sizes(*base)) if file.endswith(".parquet")]
    return ds.dataset(files, format="parquet", filesystem=store.system) if files else None


def _copy(store: Store, directory: Path, version: int, before: int | None) -> int:
    """Copy the files of a version. Files of the previous version (names are unique) are copied inside the store."""
    here = store.sizes(VERSIONS, str(before)) if before is not None else {}
    written = 0
    for file in sorted(directory.glob("*/*.parquet")):
        name, size = file.relative_to(directory).as_posix(), file.stat().st_size
        target = store.at(VERSIONS, str(version), name)
        store.system.create_dir(target.rpartition("/")[0], recursive=True)
        if here.get(name) == size:
            store.system.copy_file(store.at(VERSIONS, str(before), name), target)
            continue
        with file.open("rb") as source, store.system.open_output_stream(target) as stream:
            while part := source.read(_COPY_BYTES):
                stream.write(part)
        written += size
    return written


def _remove_others(store: Store, *, keep: int | None) -> None:
    """Delete all versions except one: older and incomplete ones."""
    from pyarrow.fs import FileSelector, FileType

    base = store.at(VERSIONS)
    for one in store.system.get_file_info(FileSelector(base, allow_not_found=True)):
        if one.type == FileType.Directory and one.base_name != str(keep):
            store.system.delete_dir(one.path)
