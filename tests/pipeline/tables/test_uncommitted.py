"""Partitions that a live member owns without a committed offset."""

from typing import Any

import pyarrow as pa

from kohort.pipeline.tables.contract import arrow_schema
from kohort.pipeline.tables.offsets.uncommitted import with_uncommitted
from tests.pipeline import frames


def owned(group: str, topic: str | None, partition: int, **other: Any) -> frames.Row:
    row = {"group": group, "group_type": "consumer", "topic": topic, "partition": partition}
    return row | {"since_ms": 1, "until_ms": None} | other


def test_what_is_owned_now_and_not_committed_has_a_row(engine: Any) -> None:
    schema: pa.Schema = arrow_schema("offsets")
    committed = [{"group": "g", "topic": "t", "partition": 0, "offset": 5}]
    stays = [
        owned("g", "t", 0),
        owned("g", "t", 1),
        owned("g", "t", 1, member_id="moved here from", until_ms=1),
        owned("g", "t", 2, until_ms=9),
        owned("g", None, 3, topic_id="unnamed"),
        owned("classic", "t", 0, group_type="classic"),
        owned("share", "t", 0, group_type="share"),
        owned("streams", None, 0, group_type="streams", subtopology="0"),
    ]
    found = with_uncommitted(
        frames.of_schema(engine, schema, committed), frames.of_schema(engine, arrow_schema("assignments"), stays)
    )
    assert found.columns == schema.names
    rows = [
        tuple(row[name] for name in ("group", "topic", "partition", "offset")) for row in found.toArrow().to_pylist()
    ]
    assert sorted(rows) == [("classic", "t", 0, None), ("g", "t", 0, 5), ("g", "t", 1, None)]
