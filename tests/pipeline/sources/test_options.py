"""The options of the data source, and the notes on its progress."""

from pathlib import Path

import pytest

from kohort.model.errors import ConfigError
from kohort.model.ids import INTERNAL_TOPICS
from kohort.pipeline.decode.schemas import DEFAULT_KINDS
from kohort.pipeline.sources import live, progress
from kohort.pipeline.sources.live import split
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
    "partitions twice":     ({"assign": '{"t": [0]}', "partitions": "1"}, "assign and partitions exclude each other"),
    "partitions as text":   ({"assign": "t-0"},               "assign is written"),
    "records of a file":    ({"maxRecordsPerPartition": "5"}, "is for clusters; tasks of other sources have a size"),
    "a misspelling":        ({"kafka.ssl.truststore.locaton": "x"}, "unknown option kafka.ssl.trust"),
    "another word":         ({"subscribed": "orders"},            "unknown option subscribed; there are path, topics,"),
    "a table's property":   ({"owner": "root"},                   "unknown option owner; there are"),
    "the same twice":       ({"topics": "a", "subscribe": "b"},   "option subscribe and another option both give topics"),
    "two places":           ({"kafka.bootstrap.servers": "h:9"},  "option kafka.bootstrap.servers and another option"),
    "two choices":          ({"topics": "a", "subscribePattern": "b"}, "topics and topicsPattern exclude each other"),
    "no pattern":           ({"subscribePattern": "("},           r"topicsPattern '\(' is no regular expression"),
    "a slip":               ({"subscribed": "orders"},            r"did you mean subscribe\?$"),
    "a slip in columns":    ({"columns": "ofset"},                r"did you mean offset\?$"),
    "a slip in kinds":      ({"kinds": "batches"},                r"did you mean batch\?$"),
    "a slip in security":   ({"kafka.sasl.mechanisms": "x"},      r"did you mean sasl.mechanism\?$"),
    "nothing like it":      ({"zzz": "1"},                        r"and kafka\.\*$"),
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


def test_names_of_sparks_own_kafka_source() -> None:
    given = {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "subscribe": "orders, carts",
        "startingTimestamp": "1795252834123",
        "maxOffsetsPerTrigger": "500",
        "minPartitions": "7",
        "failOnDataLoss": "false",
        "kafka.security.protocol": "PLAINTEXT",
    }
    options = SourceOptions.parse(given)
    assert options.path == "kafka://one:9092,two:9092"
    assert options.topics == frozenset({"orders", "carts"})
    assert (options.from_ms, options.max_records, options.min_partitions) == (1795252834123, 500, 7)
    assert not options.fail_on_data_loss


def test_partitions_that_are_assigned() -> None:
    options = parse(assign='{"orders": [0, 2], "carts": [1]}', endingTimestamp="5")
    assert options.topics == frozenset({"orders", "carts"})
    assert options.to_ms == 5
    places = [(topic, number) for topic in ("orders", "carts", "more") for number in range(3)]
    assert [place for place in places if options.matches(*place)] == [("orders", 0), ("orders", 2), ("carts", 1)]


def test_a_pattern_matches_whole_names() -> None:
    options = parse(subscribePattern="orders|carts-.*")
    assert options.topics is None
    assert [name for name in ("orders", "orders2", "carts-1", "my-carts-1") if options.matches(name, 3)] == [
        "orders",
        "carts-1",
    ]


def test_logs_of_a_cluster_are_split_into_tasks() -> None:
    logs = [
        live.LiveLog("t", 0, 10, 110, "h", 1),
        live.LiveLog("t", 1, 0, 3, "h", 1),
        live.LiveLog("t", 2, 5, 5, "h", 1),
    ]

    def parts(**options: str) -> list[tuple[int, int, int]]:
        return [
            (one.partition, one.start, one.end)
            for one in split(logs, SourceOptions.parse({"path": "kafka://h:1", **options}))
        ]

    unsplit = [(0, 10, 110), (1, 0, 3), (2, 5, 5)]
    assert parts() == parts(minPartitions="3") == parts(maxRecordsPerPartition="100") == unsplit
    fifths = [(0, 10, 30), (0, 30, 50), (0, 50, 70), (0, 70, 90), (0, 90, 110), (1, 0, 3), (2, 5, 5)]
    assert parts(maxRecordsPerPartition="20") == fifths
    assert parts(minPartitions="5") == parts(minPartitions="5", maxRecordsPerPartition="99") == fifths


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
