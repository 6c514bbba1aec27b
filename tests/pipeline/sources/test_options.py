"""The options of the data source, and the notes on its progress."""

from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode.schemas import DEFAULT_KINDS
from kohort.pipeline.sources import progress
from kohort.pipeline.sources.options import SourceOptions


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "/data", **options})


def test_the_defaults_read_the_records_of_the_coordinators() -> None:
    options = parse()
    assert (options.path, options.topics, options.partitions) == ("/data", INTERNAL_TOPICS, None)
    assert (options.kinds, options.columns, options.newest) == (frozenset(DEFAULT_KINDS), None, False)


def test_names_of_options_know_no_case() -> None:
    assert parse(BYTESPERTASK="5", Kinds="batch").pack_bytes == 5


# fmt: off
TOPICS = {
    "*":            None,
    "a, b,,":       {"a", "b"},
    "":             set(),
}
REFUSED = {
    "no path":              ({"path": ""},                    "needs a path"),
    "an unknown kind":      ({"kinds": "batch,bach"},         "unknown kind 'bach'; there are offset_commit,"),
    "an unknown column":    ({"columns": "offset,offset_"},   "unknown column 'offset_'; there are kind,"),
    "a misspelling":        ({"kafka.ssl.truststore.locaton": "x"}, "unknown option kafka.ssl.trust"),
    "no number":            ({"partitions": "1,two"},         "partitions are whole numbers, not '1,two'"),
}
# fmt: on


@pytest.mark.parametrize("words", TOPICS)
def test_topics(words: str) -> None:
    assert parse(topics=words).topics == TOPICS[words]


def test_partitions_and_columns() -> None:
    options = parse(partitions="3, 1", columns="offset,group", newest="TRUE")
    assert (options.partitions, options.columns, options.newest) == (frozenset({1, 3}), ("offset", "group"), True)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(name: str) -> None:
    options, text = REFUSED[name]
    with pytest.raises(ConfigError, match=text):
        parse(**options)


def test_progress_is_the_sum_over_tasks(tmp_path: Path) -> None:
    for task in range(2):
        note = progress.Note(str(tmp_path), task)
        note.add(rows=3)
        note.add(bytes_read=10, rows=1)
    (tmp_path / "9.progress").write_bytes(b"half")
    assert progress.total(tmp_path) == (20, 8)


def test_progress_that_cannot_be_told_is_not() -> None:
    progress.Note("/nowhere/at/all", 0).add(rows=1)
    progress.Note(None, 0).add(rows=1)
    assert progress.total("/nowhere/at/all") == (0, 0)
