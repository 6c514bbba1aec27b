"""All tables of a data directory, published: once for each state of the source, whole or not at all."""

from pathlib import Path

from kohort.pipeline.jobs import published
from kohort.pipeline.jobs.publish import write_parquet
from kohort.pipeline.jobs.tables import Tables


def run(tables: Tables, out: str | Path) -> published.Published:
    """
    Publish the tables of `tables.reading.directory` into `out`.

    What is appended while it runs may be in one table and not in another, and goes into the next run as a whole: the source
    counts as it was before it was read.
    """
    source = tables.reading.directory

    def write(directory: Path) -> None:
        for name in published.TABLES:
            write_parquet(getattr(tables, name), directory, name)

    return published.publish(out, source, write, made_of=published.fingerprint(source))
