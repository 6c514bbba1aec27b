"""
A session of the local engine: an in-memory database, and the reader of logs with the options of Spark's source.

The memory is bounded: DuckDB spills tables and intermediate results beyond its limit into temporary files.
"""

import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import duckdb
import pyarrow as pa

from kohort.pipeline.decode import schemas
from kohort.pipeline.engines.local import functions
from kohort.pipeline.engines.local.frames import LocalFrame
from kohort.pipeline.sources.memory import give_back
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.tasks import read_task

_MEMORY_LIMIT = "512MiB"
_BATCH_ROWS = 2048
_WINDOW_BYTES = 1 << 20
"""Smaller than Spark's: 10 MB less for a tenth more processor time of the decoder."""


class LocalSession:
    """Frames over an in-memory database; not thread-safe."""

    kohort_expressions: ModuleType = functions
    cores = 1
    """Tasks that read at the same time."""

    def __init__(self, *, memory_limit: str = _MEMORY_LIMIT) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="kohort-local-")
        settings: dict[str, Any] = {"memory_limit": memory_limit, "temp_directory": str(Path(self._scratch.name))}
        # Reading takes most of the time, on one thread. Each thread of a query has buffers of its own.
        settings |= {"threads": 1, "async_threads": 1}
        settings |= {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        self._database = duckdb.connect(config=settings)
        self._names = count()
        self._tables: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        self._scratch.cleanup()

    @property
    def read(self) -> "SourceReader":
        return SourceReader(self)

    def createDataFrame(self, table: pa.Table) -> LocalFrame:  # noqa: N802  (Spark's name)
        return self.from_rows(lambda: iter(table.to_batches()), table.schema)

    def from_rows(self, rows: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema) -> LocalFrame:
        """Return a frame of rows that a function makes, at each use of the frame."""
        return LocalFrame(self, "", (), list(schema.names), rows=rows, schema=schema)

    def new_name(self) -> str:
        return f"f{next(self._names)}"

    @contextmanager
    def reader(self, frame: LocalFrame) -> Iterator[pa.RecordBatchReader]:
        """Run the query of a frame, and provide its rows."""
        self.store(frame)
        with self._bound(frame, _reader) as (connection, sql):
            yield connection.sql(sql).to_arrow_reader(_BATCH_ROWS)

    def store(self, frame: LocalFrame) -> None:
        """Make tables of the persisted frames that a frame needs, and of itself if it is persisted."""
        for one in _ancestors(frame, without=self._tables):
            if one.is_persisted:
                self._store(one)

    def spilled_bytes(self) -> int:
        """Return the size of the temporary files."""
        (found,) = self._database.execute("SELECT coalesce(sum(size), 0) FROM duckdb_temporary_files()").fetchall()
        return int(found[0])

    def schema(self, frame: LocalFrame) -> pa.Schema:
        """Return the schema of a frame. Nothing is read for it."""
        with self._bound(frame, _no_rows) as (connection, sql):
            return connection.sql(f"{sql} LIMIT 0").to_arrow_reader().schema

    def _store(self, frame: LocalFrame) -> None:
        with self._bound(frame, _reader) as (connection, sql):
            connection.execute(f"CREATE TABLE {frame.name} AS {sql}")
        self._tables.add(frame.name)

    @contextmanager
    def _bound(self, frame: LocalFrame, rows_of: Callable[[LocalFrame], Any]) -> Iterator[tuple[Any, str]]:
        """Provide a connection that knows the rows in a query, and the query."""
        # A result is read from its connection while another query makes the rows of a frame: each needs its own.
        connection = self._database.cursor()
        try:
            parts = []
            uses = _uses(frame, self._tables)
            for one in _ancestors(frame, without=self._tables):
                sql = one.sql
                if one.rows is not None:
                    connection.register(f"{one.name}_rows", rows_of(one))
                    sql = f"SELECT * FROM {one.name}_rows"
                hint = "MATERIALIZED" if uses[one.name] > 1 else "NOT MATERIALIZED"
                parts.append(f"{one.name} AS {hint} ({sql})")
            chain = f"WITH {', '.join(parts)} " if parts else ""
            yield connection, f"{chain}SELECT * FROM {frame.name}"
        finally:
            connection.close()


class SourceReader:
    """`spark.read`: of logs by `format("kohort")`, and of Parquet files."""

    def __init__(self, session: LocalSession, options: Mapping[str, str] | None = None) -> None:
        self._session, self._options = session, dict(options or {})

    def format(self, _: str) -> "SourceReader":
        return self

    def option(self, name: str, value: object) -> "SourceReader":
        return self.options(**{name: value})

    def options(self, **values: object) -> "SourceReader":
        return SourceReader(self._session, self._options | {name: str(value) for name, value in values.items()})

    def load(self, path: str) -> LocalFrame:
        """
        Return the rows of a source.

        Raises:
            ConfigError: an option is invalid.
        """
        options = SourceOptions.parse({**self._options, "path": path})

        def rows() -> Iterator[pa.RecordBatch]:
            for task in tasks_of(options):
                yield from read_task(options, task, window_bytes=_WINDOW_BYTES)
                # The database needs the memory for the next step.
                give_back()

        return self._session.from_rows(rows, schemas.subset(options.columns))

    def parquet(self, path: str) -> LocalFrame:
        """Return the rows of the Parquet files in a directory, local or in an object store of Arrow."""
        import pyarrow.dataset as ds

        found = ds.dataset(path, format="parquet")
        return self._session.from_rows(lambda: iter(found.to_batches()), found.schema)


def spare_pandas() -> None:
    """
    Keep pyarrow from importing pandas, which it does to recognise pandas' objects, if pandas is installed: 0.25 s and 55 MB.

    For commands that end with this process: pyarrow converts nothing to pandas afterwards.
    """
    if "pandas" in sys.modules:
        return
    hidden = _NoPandas()
    sys.meta_path.insert(0, hidden)
    try:
        # pyarrow looks once.
        pa.array([0])
    finally:
        sys.meta_path.remove(hidden)


class _NoPandas(MetaPathFinder):
    """An import system without pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed", name=fullname)


def _reader(frame: LocalFrame) -> pa.RecordBatchReader:
    assert frame.rows is not None
    return pa.RecordBatchReader.from_batches(frame.schema, frame.rows())


def _no_rows(frame: LocalFrame) -> pa.Table:
    assert frame.schema is not None
    return frame.schema.empty_table()


def _ancestors(frame: LocalFrame, *, without: Iterable[str] = ()) -> list[LocalFrame]:
    """Return the frames that a query needs, each after those that it uses; `without` names tables, which need nothing."""
    found: dict[str, LocalFrame] = {}

    def visit(one: LocalFrame) -> None:
        if one.name not in found and one.name not in without:
            for parent in one.parents:
                visit(parent)
            found[one.name] = one

    visit(frame)
    return list(found.values())


def _uses(frame: LocalFrame, tables: Iterable[str]) -> dict[str, int]:
    """Count the uses of each frame in a query."""
    uses = {one.name: 0 for one in _ancestors(frame, without=tables)}
    for one in _ancestors(frame, without=tables):
        for parent in one.parents:
            if parent.name in uses:
                uses[parent.name] += 1
    return uses
