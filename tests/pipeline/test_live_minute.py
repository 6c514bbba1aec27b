"""
A minute of real clients at Kohort: they join, leave, die without a word and commit all the while; in the end the tables made
over the wire say what its APIs answer, and their history leads there.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from kohort.pipeline.jobs import publish
from kohort.pipeline.jobs.reading import Reading
from kohort.pipeline.jobs.tables import Tables
from kohort.testing.served import ServedKohort
from tests.clients.crew import MORTAL, Crew
from tests.clients.waiting import wait_until
from tests.conftest import LONG, NIGHTLY
from tests.pipeline.story import ORDERS, PARTITIONS, Story

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900), NIGHTLY]

Row = dict[str, Any]

SECONDS = 60.0 if LONG else 10.0
MEMBERS_MAX = 4 if LONG else 2
CLIENTS = ("librdkafka", "aiokafka", "kafka-python")
STAYING, LEAVING = "minute-stays", "minute-leaves"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
}


@dataclass(slots=True)
class Minute:
    """What went on at a broker: a story's topics, and crews by group."""

    story: Story
    crews: dict[str, Crew]
    chance: Random = field(default_factory=lambda: Random(8))

    def go_on(self, seconds: float) -> None:
        """Something happens to some group, again and again, while records come in."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            crew = self.crews[self.chance.choice(list(self.crews))]
            self._step(crew)
            self.story.produce(per_partition=5)
            # What comes next finds the members reading; the crew may still be under way.
            seen = len(crew.values())
            until = min(time.monotonic() + 2.0, end)
            wait_until(lambda: len(crew.values()) > seen or time.monotonic() > until, what="records to be read")  # noqa: B023

    def _step(self, crew: Crew) -> None:
        act = self.chance.choice(("join", "join", "leave", "die"))
        # Who has not been in the group yet cannot leave it.
        there = [member for member in crew.members if member.assignments()]
        if act == "join" or len(there) < 2:
            if len(crew.members) < MEMBERS_MAX:
                crew.join(self.chance.choice(CLIENTS), MORTAL)
        elif act == "leave":
            crew.leave(self.chance.choice(there))
        else:
            crew.die(self.chance.choice(there))

    def come_to_rest(self) -> None:
        """One group reads on to the end, the other one leaves some records unread."""
        for crew in self.crews.values():
            count, members = PARTITIONS[ORDERS], max(len(crew.members), 1)
            if not crew.members:
                crew.join("librdkafka", MORTAL)
            crew.settle(*sorted(count // members + (at < count % members) for at in range(members)))
        wait_until(lambda: self._has_read(STAYING) and self._has_read(LEAVING), what="all offsets to be committed")
        for member in list(self.crews[LEAVING].members):
            self.crews[LEAVING].leave(member)
        self.story.produce(per_partition=7)
        wait_until(lambda: self._has_read(STAYING), what="all offsets to be committed")

    def _has_read(self, group: str) -> bool:
        ends = self.story.ends()
        wanted = {(group, ORDERS, at): ends[ORDERS, at] for at in range(PARTITIONS[ORDERS])}
        return {key: offset for key, offset in self.story.offsets().items() if key[0] == group} == wanted


@pytest.fixture(scope="module")
def minute(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Minute]:
    with ExitStack() as stack:
        broker = stack.enter_context(ServedKohort(tmp_path_factory.mktemp("kohort"), SETTINGS))
        story = stack.enter_context(Story(broker.bootstrap))
        story.groups += [STAYING, LEAVING]
        crews = {name: Crew(broker.bootstrap, name, ORDERS, PARTITIONS[ORDERS]) for name in story.groups}
        for crew in crews.values():
            stack.enter_context(crew)
        minute = Minute(story, crews)
        minute.go_on(SECONDS)
        minute.come_to_rest()
        yield minute


@pytest.fixture(scope="module")
def tables(spark: Any, minute: Minute) -> Tables:
    return Tables(Reading(spark, f"kafka://{minute.story.bootstrap}"))


def rows_of(tables: Tables, name: str) -> list[Row]:
    return publish.rows(getattr(tables, name), name)


def test_where_groups_stand(tables: Tables, minute: Minute) -> None:
    rows = rows_of(tables, "lag")
    assert {(row["group"], row["topic"], row["partition"]): row["offset"] for row in rows} == minute.story.offsets()
    ends = minute.story.ends()
    assert all(row["end_offset"] == ends[row["topic"], row["partition"]] for row in rows)
    assert {row["group"]: row["lag"] for row in rows} == {STAYING: 0, LEAVING: 7}
    assert {row["group"]: row["lag"] for row in rows_of(tables, "lag_over_time")} == {
        STAYING: 0,
        LEAVING: 7 * PARTITIONS[ORDERS],
    }


def test_who_is_there_and_owns_what(tables: Tables, minute: Minute) -> None:
    told = minute.story.members([STAYING, LEAVING])
    assert {group for group, _ in told} == {STAYING}
    there = [row for row in rows_of(tables, "members") if row["until_ms"] is None]
    assert {(row["group"], row["member_id"]) for row in there} == set(told)
    owned: dict[tuple[str, str], set[tuple[str, int]]] = {key: set() for key in told}
    for row in rows_of(tables, "assignments"):
        if row["until_ms"] is None:
            owned[row["group"], row["member_id"]].add((row["topic"], row["partition"]))
    assert owned == told


def test_every_change_leads_to_the_next(tables: Tables, minute: Minute) -> None:
    """From nobody to those who are there: each change begins with the members that the one before left."""
    told = {group: {name for one, name in minute.story.members([group]) if one == group} for group in minute.crews}
    for group, crew in minute.crews.items():
        rows = [row for row in rows_of(tables, "rebalances") if row["group"] == group]
        assert rows[0]["event"] == "created"
        now: set[str] = set()
        ever: set[str] = set()
        for row in rows:
            joined, left, members = ({one["member_id"] for one in row[name]} for name in ("joined", "left", "members"))
            assert left <= now
            now = now - left | joined
            assert now == members
            ever |= members
        assert now == told[group]
        assert [row["event"] for row in rows][-1] == ("rebalanced" if now else "emptied")
        generations = [row["generation"] for row in rows]
        assert generations == sorted(generations)
        # Who has read something was in the group; one that had to come back has had two ids.
        readers = [one for one in (*crew.members, *crew.gone) if one.assignments()]
        assert len(ever) >= len(readers)
        assert {row["member_id"] for row in rows_of(tables, "members") if row["group"] == group} == ever


def test_nobody_had_a_partition_that_another_one_had(tables: Tables) -> None:
    stays: dict[tuple[str, int], list[Row]] = {}
    for row in sorted(rows_of(tables, "assignments"), key=lambda row: int(row["first_log_offset"])):
        stays.setdefault((row["group"], row["partition"]), []).append(row)
    assert len(stays) == 2 * PARTITIONS[ORDERS]
    for listed in stays.values():
        for before, after in pairwise(listed):
            assert before["until_ms"] is not None
            assert before["until_ms"] <= after["since_ms"]
