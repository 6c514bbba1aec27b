"""The files of a checkpoint, whole and damaged."""

import pytest

from kohort.model.ids import TopicPartition
from kohort.pipeline.checkpoints.formats import (
    UnknownVersionError,
    check_commit,
    parse_plan,
    parse_query_id,
    parse_start,
)
from tests.pipeline.checkpoints.written import plan

ORDERS = {"orders": {0: 7, 11: 9}}
PLACES = {TopicPartition("orders", 0): 7, TopicPartition("orders", 11): 9}


def test_a_plan() -> None:
    found = parse_plan(plan(ORDERS, at_ms=5, watermark_ms=3).encode())
    assert (found.began_ms, found.watermark_ms, found.offsets) == (5, 3, PLACES)
    assert found.settings == {"spark.sql.shuffle.partitions": "200"}


def test_version_2_names_its_sources() -> None:
    assert parse_plan(plan(ORDERS, None, version=2).encode()).offsets == PLACES


def test_several_sources() -> None:
    """Two sources of one partition: the one that is behind counts, as its records are read again and unread."""
    one, other = {"orders": {0: 7}}, {"orders": {0: 5, 1: 2}, "refunds": {0: 1}}
    for sources in ((one, None, other), (other, one)):
        found = parse_plan(plan(*sources).encode())
        assert found.offsets == {("orders", 0): 5, ("orders", 1): 2, ("refunds", 0): 1}


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"logOffset":4}', "files"),
        (
            '{"sourceVersion":1,"reservoirId":"x","reservoirVersion":3,"index":-1,"isStartingVersion":false}',
            "a Delta table",
        ),
        ("17", "numbers, as of rate or socket"),
        ('{"stream":{"shard":"x"}}', "not Kafka"),
        ('{"stream":{"0":"x"}}', "not Kafka"),
    ],
)
def test_other_sources_are_named(text: str, named: str) -> None:
    found = parse_plan(plan(text, ORDERS).encode())
    assert (found.others, found.offsets) == ((f"source 0 ({named})",), PLACES)


@pytest.mark.parametrize("version", ["v3", "v99"])
def test_an_unknown_version(version: str) -> None:
    with pytest.raises(UnknownVersionError, match="a newer Spark wrote it"):
        parse_plan(f"{version}\n{{}}\n{{}}".encode())


def test_an_unknown_version_of_a_commit() -> None:
    for version in (1, 2, 3):
        check_commit(f'v{version}\n{{"nextBatchWatermarkMs":0}}'.encode())
    check_commit(b"v1")
    with pytest.raises(UnknownVersionError):
        check_commit(b"v4\n{}")


@pytest.mark.parametrize("cut", range(len(plan(ORDERS))))
def test_a_plan_that_is_cut_off(cut: int) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_plan(plan(ORDERS).encode()[:cut])


@pytest.mark.parametrize(
    "text",
    [
        "v1\n[]\n{}",
        'v1\n{}\n{"orders":{"0":-1}}',
        'v1\n{}\n{"orders":{"99999999999":1}}',
        'v1\n{"batchTimestampMs":"x"}\n{}',
        'v1\n{"batchTimestampMs":true}\n{}',
        "v1\n{}\n" + "[" * 5_000,
        "\0" * 300,
        "v\u0661\n{}\n{}",
    ],
)
def test_other_damage(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_plan(text.encode())


def test_where_a_source_began() -> None:
    assert parse_start(b'\0v1\n{"orders":{"0":7,"11":9}}') == PLACES
    assert parse_start(b'v1\n{"path":"x"}') == {}
    with pytest.raises(ValueError, match="version"):
        parse_start(b"\0")


def test_the_query_id() -> None:
    assert parse_query_id(b'{"id":"x"}') == "x"
    assert [parse_query_id(data) for data in (b"", b"{}", b"[]", b'{"id":1}', b"\xff")] == [None] * 5
