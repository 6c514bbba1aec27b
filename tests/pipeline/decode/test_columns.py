"""Columns that are not asked for are not made, and the others stay the same; so does the damage."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kohort.pipeline.decode import schemas
from kohort.pipeline.decode.log import Decoder
from kohort.pipeline.decode.segments import Segment, list_segments
from kohort.records import json_form
from tests.pipeline.logbytes import batch, decode_directory

KINDS = (*schemas.DEFAULT_KINDS, schemas.BATCH)
TOPICS = {"__consumer_offsets", "__transaction_state", "__share_group_state"}


def test_a_choice_of_columns_is_a_selection_of_all(recorded: Callable[[str], Path]) -> None:
    segments = list_segments(recorded("main") / "logs", topics=TOPICS)
    whole = decode_directory(segments, Decoder(KINDS))
    assert len(whole)
    names, rng = list(schemas.SCHEMA.names), Random(11)
    choices = [rng.sample(names, rng.randint(1, 12)) for _ in range(6)]
    for chosen in (["group", "timestamp_ms"], ["value"], ["transaction"], ["key", "members"], *choices):
        found = decode_directory(segments, Decoder(KINDS, schemas.subset(chosen)))
        assert found.equals(whole.select(chosen)), chosen


def test_a_value_that_is_not_wanted_is_not_converted_but_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_form, "json_value", lambda *_: pytest.fail("converted"))
    key = b"\x00\x03\x00\x01g"
    raw = batch(0, [(key, b"\x00\x00\x00\x00\x00\x07\x00"), (key, b"\x00\x00\x00")])
    wanted = schemas.subset(("kind", "group", "record_type", "problem"))
    kinds = (schemas.COORDINATOR, schemas.DAMAGE)
    found = list(Decoder(kinds, wanted).decode(raw, Segment("__consumer_offsets", 0, 0, "/nowhere", len(raw))))
    rows = [row for piece in found for row in piece.to_pylist()]
    assert [(row["kind"], row["group"], row["problem"]) for row in rows] == [
        ("coordinator", "g", None),
        ("damage", None, "malformed ConsumerGroupMetadata record"),
    ]
