"""Topics that nobody asks for by name: what their configuration may be, and what the log says when they cannot be made."""

import logging
from typing import Any

import pytest

from kohort.model.errors import ConfigError, ErrorCode
from kohort.model.ids import CONSUMER_OFFSETS
from tests.broker.harness import Harness

KEYS = ["offsets.topic", "transaction.state.log", "share.coordinator.state.topic"]


def harness_with(name: str, value: str) -> Harness:
    settings: dict[str, Any] = {name.replace(".", "_"): value}
    return Harness(**settings)


@pytest.mark.parametrize("key", KEYS)
def test_segments_that_no_topic_may_have_are_refused_at_the_start(key: str) -> None:
    """A topic's segment.bytes is 1 MiB at least; the broker's own configuration would take any. Source: LogConfig, KIP-1030."""
    name = f"{key}.segment.bytes"
    with pytest.raises(ConfigError, match=f"{name}.* as configured: .*1048575"):
        harness_with(name, "1048575")
    harness_with(name, "1048576")


def test_the_log_says_once_why_an_internal_topic_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    harness.create(CONSUMER_OFFSETS.replace("_", "."))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert harness.broker.creation.auto_create(CONSUMER_OFFSETS) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (message,) = caplog.messages
    assert message.startswith(f"topic.not_created topic={CONSUMER_OFFSETS} error=")
    assert "collides" in message
