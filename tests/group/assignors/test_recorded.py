"""
The targets of Apache Kafka 4.2.1: `assignors-4.2.1.json` of a broker, `assignor-stories-4.2.1.json.gz` of its assignors alone.

The broker's targets of several topics depend on the ids of the topics, which the file does not have. Where they differed
between runs, the case has `also_seen`, and no equality can be asked for.
"""

import gzip
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kohort.group.assignors.builtin import BUILT_IN
from tests.group.assignors.groups import assert_valid, sizes, successive

DATA = Path(__file__).parents[2] / "data" / "group"
CASES = {case["name"]: case for case in json.loads((DATA / "assignors-4.2.1.json").read_text())["cases"]}
STORIES = json.loads(gzip.decompress((DATA / "assignor-stories-4.2.1.json.gz").read_bytes()))

Step = tuple[dict[UUID, int], dict[str, list[UUID]], dict[str, str]]


def steps_of(case: Mapping[str, Any], ids: Mapping[str, UUID]) -> Iterator[Step]:
    """The group after each step of a case. Topics that do not exist are in no subscription."""
    counts = {ids[name]: count for name, count in case["topics"].items()}
    subscriptions: dict[str, list[UUID]] = {}
    instances: dict[str, str] = {}
    for step in case["steps"]:
        if step["op"] == "leave":
            del subscriptions[step["member"]]
        elif step["op"] == "grow":
            counts[ids[step["topic"]]] = step["partitions"]
        else:
            subscriptions[step["member"]] = [ids[name] for name in step["topics"] if name in ids]
            if "instance" in step:
                instances[step["member"]] = step["instance"]
        yield dict(counts), dict(subscriptions), dict(instances)


@pytest.mark.parametrize("name", CASES)
def test_the_targets_are_those_of_a_broker(name: str, rng: random.Random) -> None:
    case = CASES[name]
    ids = {topic: UUID(int=rng.getrandbits(128)) for topic in case["topics"]}
    names = {topic_id: topic for topic, topic_id in ids.items()}
    steps = list(steps_of(case, ids))
    found = list(successive(BUILT_IN[case["assignor"]], steps))
    for (counts, _, _), (spec, target), recorded in zip(steps, found, case["steps"], strict=True):
        assert_valid(spec, target, counts)
        if "also_seen" not in case:
            shown = {
                member_id: {names[topic_id]: list(partitions) for topic_id, partitions in assignment.items()}
                for member_id, assignment in target.items()
            }
            assert shown == recorded["target"]
        elif spec.is_homogeneous:
            assert sorted(sizes(target).values()) == sorted(
                sum(map(len, assignment.values())) for assignment in recorded["target"].values()
            )


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_the_targets_are_those_of_kafkas_assignors(number: int) -> None:
    story = STORIES[number]
    steps = [
        (
            {UUID(hex=topic): count for topic, count in step["topics"].items()},
            {
                member_id: [UUID(hex=topic) for topic in member["topics"]]
                for member_id, member in step["members"].items()
            },
            {member_id: member["instance"] for member_id, member in step["members"].items() if "instance" in member},
        )
        for step in story["steps"]
    ]
    for index, (_, target) in enumerate(successive(BUILT_IN[story["assignor"]], steps)):
        shown = {
            member_id: {topic_id.hex: list(partitions) for topic_id, partitions in assignment.items()}
            for member_id, assignment in target.items()
        }
        assert shown == story["targets"][index], f"step {index}"
