"""
Log directories in a file system of Hadoop.

`viewfs://logs/` is one that every Spark has: a table of links to other file systems, here to a directory. Its paths go the way
of those of object stores, through the interface of Hadoop.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kohort.model.errors import ConfigError
from kohort.pipeline import read
from kohort_lab.history import History
from tests.pipeline import frames

pytestmark = pytest.mark.spark

LINK = "fs.viewfs.mounttable.logs.link./kafka"
COLUMNS = ("kind", "log_topic", "log_partition", "segment", "position", "log_offset", "group", "offset", "key")


@pytest.fixture
def logs(spark: Any, tmp_path: Path) -> Iterator[Path]:
    """A directory that is `viewfs://logs/kafka`, too."""
    History(3).write(tmp_path)
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(LINK, f"file://{tmp_path}")
    configuration.set("fs.viewfs.impl.disable.cache", "true")  # each test has a link of its own
    yield tmp_path
    configuration.unset(LINK)


def test_rows_are_those_of_the_directory(spark: Any, logs: Path) -> None:
    options = {"topics": "*", "kinds": "offset_commit,transaction,segment", "partitions": "0"}
    expected = frames.tuples(read(spark, str(logs), options), *COLUMNS)
    assert {"offset_commit", "transaction", "segment"} == {row[0] for row in expected}
    assert frames.tuples(read(spark, "viewfs://logs/kafka", options), *COLUMNS) == expected


def test_damage_is_told(spark: Any, logs: Path) -> None:
    with next(logs.glob("__consumer_offsets-0/*.log")).open("ab") as file:
        file.write(b"torn")
    rows = read(spark, "viewfs://logs/kafka", {"kinds": "damage"}).collect()
    assert [row["problem"] for row in rows] == ["incomplete batch"]


def test_what_cannot_be_read_is_a_sentence(spark: Any, logs: Path) -> None:
    with pytest.raises(ConfigError, match=r"viewfs://logs/nothing cannot be listed: .*nothing"):
        read(spark, "viewfs://logs/nothing")
    with pytest.raises(ConfigError, match=r"some://where cannot be listed: No FileSystem for scheme"):
        read(spark, "some://where")
    with pytest.raises(ConfigError, match="is read as whole files, without compact"):
        read(spark, "viewfs://logs/kafka", {"compact": "true"})


def test_no_segment_makes_an_empty_frame(spark: Any, logs: Path) -> None:
    frame = read(spark, "viewfs://logs/kafka", {"topics": "none", "columns": "group,offset"})
    assert (frame.columns, frame.count()) == (["group", "offset"], 0)
