"""
Tables in this process, without Spark and Java.

`local_table("/var/lib/kafka", "lag")` returns the rows of a table as a `pyarrow.Table`. The rules are those of Spark: the
functions of `tables` run over the frames of either engine. The memory is bounded, see `engines.local.session`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from kohort.pipeline.checkpoints.checkpoint import Extent
from kohort.pipeline.checkpoints.named import parse_named
from kohort.pipeline.jobs.publish import sorted_table
from kohort.pipeline.jobs.reading import EXTENTS, LATEST_ONLY, Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.pipeline.tables.burrow.evaluator import Rules


@contextmanager
def local_tables(
    source: str | Path,
    *,
    group: str | None = None,
    as_of_ms: int | None = None,
    is_latest_only: bool = False,
    connection: Mapping[str, str] | None = None,
    progress_directory: Path | None = None,
    rules: Rules | None = None,
    checkpoints: Sequence[str] = (),
    extent: Extent = Extent.ALL,
) -> Iterator[Tables]:
    """
    Provide the tables of a source; one read serves several of them.

    Args:
        source: a data directory or `kafka://HOST:PORT`.
        group, as_of_ms, is_latest_only, connection, progress_directory: as for `reading.Reading`.
        rules: Burrow's settings.
        checkpoints: of Spark queries, as `NAME=DIR`.
        extent: as for `reading.Reading`.

    Raises:
        ConfigError: the connection options are invalid.
    """
    from kohort.pipeline.engines.local.session import LocalSession

    with LocalSession() as session:
        reading = Reading(
            session,
            source,
            group=group,
            as_of_ms=as_of_ms,
            progress_directory=progress_directory,
            is_latest_only=is_latest_only,
            connection=connection,
            checkpoints=[parse_named(one) for one in checkpoints],
            extent=extent,
        )
        yield Tables(reading, rules=rules)


def local_table(source: str | Path, name: str, **options: Any) -> pa.Table:
    """
    Return a table of a source, in the order of published tables.

    Args:
        name: of a table, as in docs/pipeline.md.
        options: as for `local_tables`.

    Raises:
        ConfigError: the source cannot be read.
    """
    options.setdefault("is_latest_only", name in LATEST_ONLY)
    options.setdefault("extent", EXTENTS.get(name, Extent.ALL))
    with local_tables(source, **options) as tables:
        found = getattr(tables, name).toArrow()
    return sorted_table(found, name)
