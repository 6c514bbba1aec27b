"""Strings of answers are encoded once and remembered: the second time they are the same bytes."""

import pytest

from kohort.model.limits import STRING_BYTES_MAX
from kohort.wire import encoders
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey
from kohort.wire.encoders import response_encoder
from kohort.wire.readers import response_reader


def answer(text: str | None) -> bytes:
    response = m.ConsumerGroupHeartbeatResponse(error_message=text)
    return response_encoder(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)(7, response)


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 129, 16_382, 16_383])
@pytest.mark.parametrize("character", ["a", "é"])
def test_a_string_of_any_length_is_read_as_it_was_written(length: int, character: str) -> None:
    text = character * length
    first, second = answer(text), answer(text)
    assert first == second
    assert response_reader(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)(first, 9).error_message == text


def test_null_is_not_the_empty_string() -> None:
    read = response_reader(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    assert [read(answer(text), 9).error_message for text in (None, "", None, "")] == [None, "", None, ""]


def test_a_string_that_is_too_long_is_cut_each_time() -> None:
    read = response_reader(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    for _ in range(2):
        assert read(answer("a" * (STRING_BYTES_MAX + 1)), 9).error_message == "a" * STRING_BYTES_MAX


def test_few_and_short_strings_are_remembered() -> None:
    for number in range(2 * encoders._TEXTS_MAX + 50):
        answer(f"text {number}")
        assert len(encoders._texts) <= encoders._TEXTS_MAX
    answer("a" * 128)
    assert "a" * 128 not in encoders._texts
