"""Share groups answer and write what Apache Kafka 4.4.0 answered and wrote: members, assignments, offsets, deletion."""

from copy import deepcopy

import pytest

from tests.broker.shares.player import SharePlayer
from tests.share.stories import story

STORIES: dict[str, int] = {
    # How many calls it has.
    "join-first": 7,
    "assignment-interval": 10,
    "second-member": 12,
    "heartbeat-errors": 19,
    "subscription-change": 11,
    "rejoin-with-epoch-0": 7,
    "leave-and-return": 9,
    "session-expiry": 9,
    "assignment-counts": 8,
    "group-full": 15,
    "topic-created-later": 8,
    "partitions-added": 9,
    "new-partition-of-a-known-topic": 6,
    "topic-deleted": 16,
    "list-groups": 9,
    "describe-errors": 7,
    "type-conflicts": 26,
    "group-configs": 33,
    "features": 18,
    "rights": 44,
    "offsets-alter": 17,
    "offsets-alter-odd-values": 21,
    "offsets-altered-with-open-session": 12,
    "offsets-describe": 22,
    "offsets-delete": 18,
    "offsets-delete-unknown-group-state": 4,
    "group-deleted": 15,
    "group-deleted-with-open-session": 14,
}
PASSED: dict[str, tuple[int, ...]] = {
    # The start offset that the leader has chosen is written at once, see docs/unsupported.md.
    "partitions-added": (17,),
    # Which of two partitions a fetch reads first; an unknown topic id does not fail the whole request.
    "rights": (9, 23, 24, 27, 29),
}
LATER_MS: dict[str, tuple[int, int]] = {"rights": (19, 1_000)}
"""A step that came later, because steps before it took their time on the recorded node."""


@pytest.mark.parametrize("name", STORIES)
def test_a_story(name: str) -> None:
    steps = deepcopy(story(name))
    number, later_ms = LATER_MS.get(name, (0, 0))
    steps[number]["delay_ms"] = steps[number].get("delay_ms", 0) + later_ms
    player = SharePlayer(name, frozenset(PASSED.get(name, ())))
    player.play(steps)
    assert player.calls == STORIES[name]
