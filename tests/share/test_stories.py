"""The share coordinator answers and writes what Apache Kafka 4.4.0 answered and wrote."""

from copy import deepcopy
from typing import Any

import pytest

from tests.broker.harness import Harness
from tests.share.stories import PROFILES, SETTINGS, Player, story

STORIES = (
    "find-share-coordinator",
    "state-basic",
    "state-batches-combined",
    "state-errors",
    "state-many",
    "state-snapshots",
    "state-start-offset-and-count",
)


def player(name: str) -> Player:
    """A broker with the share coordinator, as the node of a story."""
    harness = Harness(**SETTINGS, **PROFILES[story(name)[0]["profile"]])
    harness.host_shares()
    return Player(harness)


BETTER: dict[str, dict[int, dict[str, Any]]] = {
    "state-errors": {
        # Kafka stores a batch that ends before it begins, and fails all later writes.
        35: {"errorCode": 42, "errorMessage": "A state batch ends before it begins."},
        36: {"stateBatches": []},
        37: {"errorCode": 0, "errorMessage": None},
        38: {"stateBatches": [{"firstOffset": 0, "lastOffset": 0, "deliveryState": 2, "deliveryCount": 1}]},
    }
}
"""What Kohort answers on purpose in some steps, which have one partition each. See docs/unsupported.md."""


@pytest.mark.parametrize("name", STORIES)
def test_a_story(name: str) -> None:
    steps = deepcopy(story(name))
    for number, fields in BETTER.get(name, {}).items():
        steps[number]["response"]["results"][0]["partitions"][0] |= fields
    player(name).play(steps)
