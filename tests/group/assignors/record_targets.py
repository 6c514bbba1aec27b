"""
Asks the assignors of Apache Kafka 4.2.1 for the targets of random groups, and keeps them for the tests:

    python -m tests.group.assignors.record_targets

Needs a JDK. No two members, topics or partitions of a story are in the same bucket of a Java hash table, because the order
within a bucket depends on earlier targets. Topics with more partitions than buckets are only in stories where that order makes
no difference: with the range assignor, or if subscriptions differ. One member with a topic of its own makes sure that they do.
"""

import gzip
import json
import random
import subprocess
from pathlib import Path
from typing import Any
from uuid import UUID

from kohort.group.assignors.java_order import string_hash, uuid_hash
from kohort.testing.kafka import java, kafka_jars

RECORDED = Path(__file__).parents[2] / "data" / "group" / "assignor-stories-4.2.1.json.gz"
STORIES = 160
STEPS = 6
BUCKETS = 16
"""The smallest hash table. Elements of different buckets here are in different buckets of larger tables."""


def main() -> None:
    rng = random.Random(421)
    stories = [story(rng) for _ in range(STORIES)]
    for each, targets in zip(stories, targets_of(stories), strict=True):
        each["targets"] = targets
    text = json.dumps(stories, separators=(",", ":"), sort_keys=True)
    RECORDED.write_bytes(gzip.compress(text.encode(), mtime=0))


def targets_of(stories: list[dict[str, Any]]) -> list[Any]:
    """Kafka's targets of each story."""
    command = [java(), "-cp", f"{kafka_jars()}/*", str(Path(__file__).with_name("Targets.java"))]
    lines = "\n".join(json.dumps(each) for each in stories)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def story(rng: random.Random) -> dict[str, Any]:
    """A group that changes: members join, leave and subscribe to other topics, topics grow."""
    assignor = rng.choice(["range", "uniform", "uniform", "uniform"])
    is_homogeneous = rng.random() < 0.4
    partitions_max = BUCKETS if is_homogeneous and assignor == "uniform" else 60
    own, *others = topic_ids(rng, 1 + rng.choice([1, 2, 3, 5, 9]))
    topics = {topic: rng.randint(1, partitions_max) for topic in others}
    owner, *candidates = member_ids(rng)
    members: dict[str, dict[str, Any]] = {}
    steps = []
    for _ in range(STEPS):
        for _ in range(rng.choice([1, 1, 2, 5])):
            change(rng, members, topics, candidates, is_homogeneous, partitions_max)
        step: dict[str, dict[str, Any]] = {
            "topics": dict(topics),
            "members": {member_id: dict(one) for member_id, one in members.items()},
        }
        if not is_homogeneous:
            step["topics"][own] = 2
            step["members"][owner] = {"topics": [own]}
        steps.append(step)
    return {"assignor": assignor, "steps": steps}


def change(
    rng: random.Random,
    members: dict[str, dict[str, Any]],
    topics: dict[str, int],
    candidates: list[str],
    is_homogeneous: bool,
    partitions_max: int,
) -> None:
    chance = rng.random()
    if chance < 0.5 or not members:
        subscribed = sorted(topics) if is_homogeneous else subscription(rng, topics)
        member_id = rng.choice(candidates)
        members[member_id] = {"topics": subscribed}
        if rng.random() < 0.2:
            members[member_id]["instance"] = f"instance-{member_id}"
    elif chance < 0.7 and len(members) > 1:
        del members[rng.choice(sorted(members))]
    elif chance < 0.85 and not is_homogeneous:
        members[rng.choice(sorted(members))]["topics"] = subscription(rng, topics)
    else:
        topic = rng.choice(sorted(topics))
        topics[topic] = min(partitions_max, topics[topic] + rng.choice([1, 3, 10]))


def subscription(rng: random.Random, topics: dict[str, int]) -> list[str]:
    return sorted(rng.sample(sorted(topics), rng.randint(1, len(topics))))


def topic_ids(rng: random.Random, count: int) -> list[str]:
    found: dict[int, str] = {}
    while len(found) < count:
        topic_id = UUID(int=rng.getrandbits(128))
        found.setdefault(_bucket(uuid_hash(topic_id)), topic_id.hex)
    return list(found.values())


def member_ids(rng: random.Random) -> list[str]:
    found: dict[int, str] = {}
    while len(found) < BUCKETS:
        member_id = str(UUID(int=rng.getrandbits(128)))
        found.setdefault(_bucket(string_hash(member_id)), member_id)
    return list(found.values())


def _bucket(value: int) -> int:
    return (value ^ (value >> 16)) % BUCKETS


if __name__ == "__main__":
    main()
