"""Groups of the kind share answer and write what Apache Kafka 4.4.0 answered and wrote, as far as no record is fetched."""

from copy import deepcopy

import pytest

from tests.broker.shares.story_player import StoryPlayer
from tests.share.stories import story

STORIES: dict[str, int] = {
    # The calls that are played.
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
    "topic-created-later": 7,
    "partitions-added": 8,
    "new-partition-of-a-known-topic": 5,
    "topic-deleted": 8,
    "list-groups": 9,
    "describe-errors": 7,
    "type-conflicts": 25,
    "group-configs": 33,
    "features": 11,
    "rights": 28,
    "offsets-alter": 12,
    "offsets-alter-odd-values": 14,
    "offsets-altered-with-open-session": 6,
    "offsets-describe": 12,
    "offsets-delete": 13,
    "offsets-delete-unknown-group-state": 4,
    "group-deleted": 12,
    "group-deleted-with-open-session": 6,
}
FETCHED: dict[str, tuple[int, ...]] = {
    "topic-deleted": (15, 18, 27),
    "features": (10, 19),
    "rights": (21, 22),
    "offsets-alter": (11, 14),
    "offsets-describe": (11, 13, 15, 16, 17, 21),
    "offsets-delete": (12,),
    "group-deleted": (8, 13),
    "group-deleted-with-open-session": (16,),
}
"""The steps that show what members have fetched and acknowledged."""


@pytest.mark.parametrize("name", STORIES)
def test_a_story(name: str) -> None:
    player = StoryPlayer(name, frozenset(FETCHED.get(name, ())))
    player.play(deepcopy(story(name)))
    assert player.played == STORIES[name]
