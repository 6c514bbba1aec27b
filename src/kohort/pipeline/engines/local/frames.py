"""
Frames of the local engine: a query of DuckDB over other frames, with the part of PySpark's `DataFrame` that the tables use.

A frame is lazy. Its query is a chain of common table expressions, one for each frame on the way, and a frame that
several others use is computed once. A persisted frame becomes a table of the session's database at its first use.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol, Self

import pyarrow as pa

from kohort.pipeline.engines.dispatch import Run
from kohort.pipeline.engines.local import functions
from kohort.pipeline.engines.local.columns import FRAME, Column, column, listed, ordered, quoted

_TEXT_OR_WORD = re.compile(r"'[^']*'|[A-Za-z_][A-Za-z0-9_]*")
_PARQUET = "part-00000.parquet"


class Session(Protocol):
    """The session of a frame, in which its query runs; `LocalSession` implements it."""

    def new_name(self) -> str: ...
    def from_rows(self, rows: Callable[[], Iterator[pa.RecordBatch]], schema: pa.Schema, /) -> "LocalFrame": ...
    def reader(self, frame: "LocalFrame", /) -> AbstractContextManager[pa.RecordBatchReader]: ...
    def store(self, frame: "LocalFrame", /) -> None: ...
    def schema(self, frame: "LocalFrame", /) -> pa.Schema: ...


class LocalFrame:
    """
    One frame.

    Attributes:
        session: where its query runs.
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
        session: "Session",
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
    def sparkSession(self) -> "Session":  # noqa: N802  (Spark's names)
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
