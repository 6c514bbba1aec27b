"""
A session of the local engine: an in-memory database, and the reader of logs with the options of Spark's source. Its frames are
queries of DuckDB over other frames, with the part of PySpark's `DataFrame` that the tables use.

A frame is lazy. Its query is a chain of common table expressions, one for each frame on the way, and a frame that several
others use is computed once. A persisted frame becomes a table of the session's database at its first use.

The memory is bounded: DuckDB spills tables and intermediate results beyond its limit into temporary files.
"""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import duckdb
import pyarrow as pa

from kohort.pipeline.decode import schemas
from kohort.pipeline.engines.dispatch import Run
from kohort.pipeline.engines.local import functions
from kohort.pipeline.engines.local.columns import FRAME, Column, column, listed, ordered, quoted
from kohort.pipeline.sources.memory import give_back
from kohort.pipeline.sources.options import SourceOptions
from kohort.pipeline.sources.plan import tasks_of
from kohort.pipeline.sources.ranges import read_task

_TEXT_OR_WORD = re.compile(r"'[^']*'|[A-Za-z_][A-Za-z0-9_]*")
_PARQUET = "part-00000.parquet"
_MEMORY_LIMIT = "512MiB"
_BATCH_ROWS = 2048
_WINDOW_BYTES = 1 << 20
"""Smaller than Spark's: 10 MB less for a tenth more processor time of the decoder."""


class LocalFrame:
    """
    One frame.

    Attributes:
        session: in which its query runs.
        name: of its common table expression, or of its table.
        sql: the query, over the names of `parents`; empty for a frame of rows.
        parents: the frames in the query.
        columns: the names of its columns.
        rows: makes the rows of a frame without a query, each time that it is used.
        schema: of these rows.
    """

    kohort_expressions: ModuleType = functions

    def __init__(
        self,
        session: "LocalSession",
        sql: str,
        parents: tuple["LocalFrame", ...],
        columns: list[str],
        *,
        rows: Callable[[], Iterator[pa.RecordBatch]] | None = None,
        schema: pa.Schema | None = None,
    ) -> None:
        self.session, self.name = session, session.new_name()
        self.sql, self.parents, self.columns = sql, parents, columns
        self.rows, self.schema = rows, schema
        self.is_persisted = False

    def __getitem__(self, name: str) -> Column:
        return column(name)

    @property
    def sparkSession(self) -> "LocalSession":  # noqa: N802  (Spark's names)
        return self.session

    def select(self, *columns: Any) -> "LocalFrame":
        chosen: dict[str, str] = {}
        for one in listed(columns):
            chosen |= self._expanded(one)
        return self._select(chosen)

    def withColumn(self, name: str, value: Column) -> "LocalFrame":  # noqa: N802  (Spark's names)
        return self.withColumns({name: value})

    def withColumns(self, values: Mapping[str, Column]) -> "LocalFrame":  # noqa: N802
        return self._select(self._all() | {name: value.sql for name, value in values.items()})

    def withColumnRenamed(self, name: str, new: str) -> "LocalFrame":  # noqa: N802
        return self.withColumnsRenamed({name: new})

    def withColumnsRenamed(self, names: Mapping[str, str]) -> "LocalFrame":  # noqa: N802
        return self._select({names.get(name, name): sql for name, sql in self._all().items()})

    def drop(self, *names: str) -> "LocalFrame":
        return self._select({name: sql for name, sql in self._all().items() if name not in names})

    def where(self, condition: Column | str) -> "LocalFrame":
        sql = self._parsed(condition) if isinstance(condition, str) else condition.sql
        return self._derived(f"SELECT * FROM {self.name} AS {FRAME} WHERE {sql}", self.columns)

    def distinct(self) -> "LocalFrame":
        return self._derived(f"SELECT DISTINCT * FROM {self.name}", self.columns)

    def repartition(self, *_: Any) -> "LocalFrame":
        return self

    def sortWithinPartitions(self, *columns: Any) -> "LocalFrame":  # noqa: N802
        order = ", ".join(ordered(one) for one in listed(columns))
        return self._derived(f"SELECT * FROM {self.name} AS {FRAME} ORDER BY {order}", self.columns)

    orderBy = sortWithinPartitions  # noqa: N815

    def unionByName(self, other: "LocalFrame", allowMissingColumns: bool = False) -> "LocalFrame":  # noqa: N802, N803
        names = list(dict.fromkeys((*self.columns, *other.columns)))
        if not allowMissingColumns and set(self.columns) != set(other.columns):
            raise ValueError(f"the frames have other columns: {self.columns} and {other.columns}")
        halves = (
            f"SELECT {', '.join(quoted(n) if n in one.columns else f'NULL AS {quoted(n)}' for n in names)} FROM {one.name}"
            for one in (self, other)
        )
        return LocalFrame(self.session, " UNION ALL ".join(halves), (self, other), names)

    def join(self, other: "LocalFrame", on: str | list[str], how: str = "inner") -> "LocalFrame":
        keys = [on] if isinstance(on, str) else list(on)
        matches = " AND ".join(f"l.{quoted(key)} = r.{quoted(key)}" for key in keys)
        if how in ("left_semi", "left_anti"):
            word = "SEMI" if how == "left_semi" else "ANTI"
            sql = f"SELECT l.* FROM {self.name} AS l {word} JOIN {other.name} AS r ON {matches}"
            return LocalFrame(self.session, sql, (self, other), self.columns)
        left = [*keys, *(name for name in self.columns if name not in keys)]
        right = [name for name in other.columns if name not in keys]
        chosen = ", ".join((*(f"l.{quoted(name)}" for name in left), *(f"r.{quoted(name)}" for name in right)))
        word = {"inner": "JOIN", "left": "LEFT JOIN"}[how]
        sql = f"SELECT {chosen} FROM {self.name} AS l {word} {other.name} AS r ON {matches}"
        return LocalFrame(self.session, sql, (self, other), [*left, *right])

    def groupBy(self, *columns: Any) -> "Grouped":  # noqa: N802
        return Grouped(self, [column(one) for one in listed(columns)])

    def mapInArrow(self, run: Run, schema: pa.Schema) -> "LocalFrame":  # noqa: N802
        def rows() -> Iterator[pa.RecordBatch]:
            with self.session.reader(self) as batches:
                yield from run(batches)

        return self.session.from_rows(rows, schema)

    def apart(
        self, kind: str, found: list[pa.RecordBatch], *, columns: Sequence[str], columns_apart: Sequence[str]
    ) -> "LocalFrame":
        """
        Return some columns of a frame of rows, without the rows of a kind: these are collected in `found` when the log is read.

        The decoder returns the rows of a kind in batches of their own.
        """
        assert self.rows is not None
        assert self.schema is not None
        read = self.rows

        def rows() -> Iterator[pa.RecordBatch]:
            found.clear()
            for batch in read():
                if batch.num_rows and batch.column("kind")[0].as_py() == kind:
                    found.append(batch.select(columns_apart))
                else:
                    yield batch.select(columns)

        return self.session.from_rows(rows, pa.schema([self.schema.field(name) for name in columns]))

    def persist(self) -> "LocalFrame":
        self.is_persisted = True
        return self

    def store(self) -> None:
        """Compute the rows of a persisted frame, unless that has happened."""
        self.session.store(self)

    def toArrow(self) -> pa.Table:  # noqa: N802
        with self.session.reader(self) as batches:
            return batches.read_all()

    def collect(self) -> list["Row"]:
        found = self.toArrow()
        columns = (column.to_pylist() for column in found.columns)
        return [Row(found.column_names, values) for values in zip(*columns, strict=True)]

    def count(self) -> int:
        return int(self.groupBy().agg(functions.count("*").alias("n")).collect()[0]["n"])

    def limit(self, rows: int) -> "LocalFrame":
        return self._derived(f"SELECT * FROM {self.name} LIMIT {rows}", self.columns)

    def write_parquet(self, directory: str) -> None:
        """Write one file into a directory, local or in an object store of Arrow; the previous files are deleted."""
        import pyarrow.parquet as pq
        from pyarrow.fs import FileSystem, LocalFileSystem

        system, path = FileSystem.from_uri(directory) if "://" in directory else (LocalFileSystem(), directory)
        system.create_dir(path, recursive=True)
        system.delete_dir_contents(path)
        with (
            self.session.reader(self) as batches,
            system.open_output_stream(f"{path}/{_PARQUET}") as stream,
            pq.ParquetWriter(stream, batches.schema, compression="zstd") as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)

    def isEmpty(self) -> bool:  # noqa: N802
        return not self.limit(1).toArrow().num_rows

    def _all(self) -> dict[str, str]:
        return {name: column(name).sql for name in self.columns}

    def _expanded(self, one: Any) -> dict[str, str]:
        """Return the columns of an argument of `select`: a name, `*`, `struct.*`, or an expression."""
        if isinstance(one, Column):
            return {one.name: one.sql}
        if one == "*":
            return self._all()
        if one.endswith(".*"):
            outer = column(one.removesuffix(".*"))
            fields = self.session.schema(self).field(outer.name).type
            return {field.name: outer[field.name].sql for field in fields}
        found = column(one)
        return {found.name: found.sql}

    def _select(self, chosen: Mapping[str, str]) -> "LocalFrame":
        columns = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in chosen.items())
        return self._derived(f"SELECT {columns} FROM {self.name} AS {FRAME}", list(chosen))

    def _derived(self, sql: str, columns: list[str]) -> "LocalFrame":
        return LocalFrame(self.session, sql, (self,), columns)

    def _parsed(self, condition: str) -> str:
        """Return a condition in SQL; names of columns are quoted, because `group` is a keyword."""

        def replaced(found: re.Match[str]) -> str:
            return column(found[0]).sql if found[0] in self.columns else found[0]

        return _TEXT_OR_WORD.sub(replaced, condition)


class Row(tuple[Any, ...]):  # noqa: SLOT001
    """A row: values by position and by name, as in Spark."""

    names: list[str]

    def __new__(cls, names: list[str], values: Iterable[Any]) -> Self:
        row = super().__new__(cls, values)
        row.names = names
        return row

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names.index(key) if isinstance(key, str) else key)


class Grouped:
    """Groups of rows, see `LocalFrame.groupBy`."""

    def __init__(self, frame: LocalFrame, keys: list[Column]) -> None:
        self._frame, self._keys = frame, keys

    def agg(self, *columns: Column) -> LocalFrame:
        chosen = {one.name: one.sql for one in (*self._keys, *columns)}
        listed_ = ", ".join(f"{sql} AS {quoted(name)}" for name, sql in chosen.items())
        # By position: a name in GROUP BY may be that of an input column.
        by = f" GROUP BY {', '.join(str(number + 1) for number in range(len(self._keys)))}" if self._keys else ""
        sql = f"SELECT {listed_} FROM {self._frame.name} AS {FRAME}{by}"
        return LocalFrame(self._frame.session, sql, (self._frame,), list(chosen))


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

    def frame_of(self, options: SourceOptions) -> LocalFrame:
        """Return the rows of a source as a frame, which is read at each use."""

        def rows() -> Iterator[pa.RecordBatch]:
            for task in tasks_of(options):
                yield from read_task(options, task, window_bytes=_WINDOW_BYTES)
                # The database needs the memory for the next step.
                give_back()

        return self.from_rows(rows, schemas.subset(options.columns))

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
        with self._bound(frame) as (connection, sql):
            yield connection.sql(sql).to_arrow_reader(_BATCH_ROWS)

    def store(self, frame: LocalFrame) -> None:
        """Make tables of the persisted frames that a frame needs, and of itself if it is persisted."""
        for one in _ancestors(frame, without=self._tables):
            if one.is_persisted:
                self._store(one)

    def schema(self, frame: LocalFrame) -> pa.Schema:
        """Return the schema of a frame. Nothing is read for it."""
        with self._bound(frame, has_rows=False) as (connection, sql):
            return connection.sql(f"{sql} LIMIT 0").to_arrow_reader().schema

    def _store(self, frame: LocalFrame) -> None:
        with self._bound(frame) as (connection, sql):
            connection.execute(f"CREATE TABLE {frame.name} AS {sql}")
        self._tables.add(frame.name)

    @contextmanager
    def _bound(self, frame: LocalFrame, *, has_rows: bool = True) -> Iterator[tuple[Any, str]]:
        """Provide a connection that knows the rows in a query, and the query."""
        # A result is read from its connection while another query makes the rows of a frame: each needs its own.
        connection = self._database.cursor()
        try:
            parts = []
            needed = _ancestors(frame, without=self._tables)
            uses = Counter(parent.name for one in needed for parent in one.parents)
            for one in needed:
                sql = one.sql
                if one.rows is not None and one.schema is not None:
                    rows = one.rows() if has_rows else ()
                    connection.register(f"{one.name}_rows", pa.RecordBatchReader.from_batches(one.schema, rows))
                    sql = f"SELECT * FROM {one.name}_rows"
                hint = "MATERIALIZED" if uses[one.name] > 1 else "NOT MATERIALIZED"
                parts.append(f"{one.name} AS {hint} ({sql})")
            chain = f"WITH {', '.join(parts)} " if parts else ""
            yield connection, f"{chain}SELECT * FROM {frame.name}"
        finally:
            connection.close()


def spare_pandas() -> None:
    """
    Keep pyarrow from importing pandas, which it does to recognise pandas' objects, if pandas is installed: 0.25 s and 55 MB.

    For commands that end with this process: pyarrow converts nothing to pandas afterwards.
    """
    if "pandas" in sys.modules:
        return
    # Cython takes None in `sys.modules` for the module.
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


def _ancestors(frame: LocalFrame, *, without: Iterable[str]) -> list[LocalFrame]:
    """Return the frames that a query needs, each after those that it uses; `without` names tables, which need nothing."""
    found: dict[str, LocalFrame] = {}

    def visit(one: LocalFrame) -> None:
        if one.name not in found and one.name not in without:
            for parent in one.parents:
                visit(parent)
            found[one.name] = one

    visit(frame)
    return list(found.values())
