"""
Published tables: a directory that is read without Spark, and whose content changes atomically.

    DIR/
      current.json            the pointer: the current version, and the state that it was made from
      versions/<number>/      a directory of Parquet files for each table
      bronze/                 the rows that runs have read, see `runs`

A run writes a new version beside the current one and then replaces `current.json`: readers see one version or the other, never
a mixture. Incomplete versions are not referenced, and the next run deletes them. The previous version stays, for readers that
still use it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kohort.model.errors import ConfigError
from kohort.pipeline.jobs import stores
from kohort.pipeline.jobs.pointer import FORMAT, POINTER, VERSIONS, Published, parse_pointer, replace_file, sync_entry
from kohort.pipeline.jobs.publish import sorted_table
from kohort.pipeline.tables.contract import COLUMNS, arrow_schema

TABLES = tuple(COLUMNS)
"""The tables that a run can publish."""

ON_DEMAND = ("status_history",)
"""Tables that cost more than all others together; they are published on request only."""

SPARK_QUERIES = "spark_queries"

_WITH_GROUPS = ("offset_commits", "members", "share_state")
"""Tables that together have all groups."""

USUAL = tuple(name for name in TABLES if name not in ON_DEMAND)
"""The tables that a run publishes by default."""


def is_published(directory: str | Path) -> bool:
    """Tell whether a run has published into this directory or object store."""
    if stores.is_store(directory):
        return stores.current(stores.opened(str(directory))) is not None
    return (Path(directory) / POINTER).is_file()


def current(directory: str | Path) -> Published:
    """
    Return the current version.

    Raises:
        ConfigError: nothing was published here, or a newer release published it.
    """
    pointer = Path(directory) / POINTER
    try:
        return parse_pointer(Path(directory), pointer.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        raise ConfigError(f"{pointer} does not say which tables are current: {exc}") from exc


def publish(
    directory: str | Path,
    source: str | Path,
    write: Callable[[Path], None],
    *,
    made_of: Any,
    on_step: Callable[[str], None] = lambda _: None,
) -> Published:
    """
    Write a version and make it the current one. Its files are flushed before the pointer names it.

    Args:
        write: writes the tables into a directory.
        made_of: the state of the source, as JSON.
        on_step: called with the name of each completed step.
    """
    root = Path(directory)
    before = current(root) if is_published(root) else None
    version = 1 if before is None else before.version + 1
    made = Published(root, version, str(source), made_of)
    _remove_other_versions(root, keep=() if before is None else (before.version,))
    on_step("cleared")
    made.path.mkdir(parents=True)
    write(made.path)
    sync(made.path)
    on_step("written")
    pointer = {"format": FORMAT, "version": version, "source": made.source, "fingerprint": made_of}
    replace_file(root / POINTER, json.dumps(pointer))
    on_step("published")
    return made


def sync(root: Path) -> None:
    """Flush all files and directories below a directory."""
    for directory, _, files in os.walk(root):
        for path in (directory, *(os.path.join(directory, name) for name in files)):
            sync_entry(path)


def _remove_other_versions(root: Path, *, keep: Sequence[int]) -> None:
    versions = root / VERSIONS
    for path in versions.iterdir() if versions.is_dir() else ():
        if path.name not in {str(version) for version in keep}:
            shutil.rmtree(path)


def table(directory: str | Path, name: str, *, where: Mapping[str, str] | None = None) -> Any:
    """
    Return a published table in its order, as an Arrow table.

    Args:
        where: required values, by column.

    Raises:
        ConfigError: the current version has no such table.
    """
    return sorted_table(_read(directory, name, where or {}), name)


def rows(directory: str | Path, name: str, *, where: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the rows of `table`."""
    found: list[dict[str, Any]] = table(directory, name, where=where).to_pylist()
    return found


def instant_of(directory: str | Path) -> int:
    """Return the instant of the tables of the current version, in milliseconds; 0 if the version does not tell."""
    return int(_told(directory, "known").get("at_ms", 0))


def request_of(directory: str | Path) -> Mapping[str, Any]:
    """Return the request of the current version: `groups` (None for all) and `as_of_ms` (None for the end of the logs)."""
    return _told(directory, "wanted")


def _told(directory: str | Path, name: str) -> Mapping[str, Any]:
    """Return a part of the state that the current version was made from, as far as it tells."""
    found = stores.current(stores.opened(str(directory))) if stores.is_store(directory) else current(directory)
    told = found.fingerprint if found is not None else None
    part = told.get(name) if isinstance(told, dict) else None
    return part if isinstance(part, dict) else {}


def offsets_as_of(directory: str | Path, at_ms: int, *, where: Mapping[str, str] | None = None) -> Any:
    """Return table `offsets` at an instant, from the published commits, as an Arrow table."""
    import pyarrow as pa

    latest: dict[tuple[str, str, int], dict[str, Any]] = {}
    for row in rows(directory, "offset_commits", where=where):
        if row["visible_at_ms"] is not None and row["visible_at_ms"] <= at_ms:
            latest[row["group"], row["topic"], row["partition"]] = row
    standing = [row for _, row in sorted(latest.items()) if not row["tombstone"]]
    return pa.Table.from_pylist(standing, arrow_schema("offsets"))


def is_of_this_release(found: Published, names: Iterable[str]) -> bool:
    """Tell whether the tables of a local version have the columns of this release."""
    import pyarrow.parquet as pq

    files = {name: next((found.path / name).glob("*.parquet"), None) for name in names}
    return all(file is not None and tuple(pq.read_schema(file).names) == COLUMNS[name] for name, file in files.items())


def groups(found: Published) -> set[str]:
    """Return the groups in the tables of a local version."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    found_groups: set[str] = set()
    for name in _WITH_GROUPS:
        if not (found.path / name).is_dir():
            continue
        table = ds.dataset(found.path / name, format="parquet")
        for batch in table.to_batches(columns=["group"]):
            found_groups.update(one for one in pc.unique(batch.column("group")).to_pylist() if one is not None)
    return found_groups


def has_group(directory: str | Path, group: str) -> bool:
    """Tell whether a group is in the published tables, as far as they were published."""
    import pyarrow.dataset as ds

    for name in _WITH_GROUPS:
        table = _table(directory, name)
        if table is not None and table.head(1, columns=["group"], filter=ds.field("group") == group).num_rows:
            return True
    return False


def _read(directory: str | Path, name: str, where: Mapping[str, str]) -> Any:
    import pyarrow.dataset as ds

    table = _table(directory, name)
    if table is None and name == SPARK_QUERIES:
        # Releases before did not have it, and no query.
        return arrow_schema(name).empty_table()
    if table is None:
        if name in ON_DEMAND:
            raise ConfigError(f"{directory} holds no table {name}; `kohort pipeline run --history` writes it")
        raise ConfigError(f"{directory} holds no table {name}; `kohort pipeline run` writes {', '.join(USUAL)}")
    missing = set(COLUMNS[name]) - set(table.schema.names)
    if missing:
        raise ConfigError(
            f"table {name} of {directory} is of another release and has no {', '.join(sorted(missing))};"
            " `kohort pipeline run` makes it again"
        )
    condition = None
    for column, value in where.items():
        if column in table.schema.names:
            one = ds.field(column) == value
            condition = one if condition is None else condition & one
    return table.to_table(filter=condition)


def _table(directory: str | Path, name: str) -> Any:
    """Return a table of the current version as a dataset; None if there is none."""
    import pyarrow.dataset as ds

    if stores.is_store(directory):
        store = stores.opened(str(directory))
        found = stores.current(store)
        return None if found is None else stores.table(store, found, name)
    path = current(directory).path / name
    return ds.dataset(path, format="parquet") if path.is_dir() else None
