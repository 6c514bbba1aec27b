"""The operations of the control API over groups, transactions, topics and records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from kohort.control.cluster.groups import STATES, GroupView, GroupWait
from kohort.control.cluster.topics import NewRecords, NewTopic, ReadRecords, TopicView, WrittenRecords
from kohort.control.cluster.transactions import STATES as TRANSACTION_STATES
from kohort.control.cluster.transactions import TransactionView, has_state, transaction_view
from kohort.control.kit import Kit
from kohort.control.requests.filters import nearest
from kohort.control.web.api import TIMEOUT, Operation, Parameter, seconds_of
from kohort.control.web.http import Response
from kohort.control.web.problems import Problem, invalid, timed_out

RECORDS_SHOWN: Final = 100


class ListedGroup(msgspec.Struct, frozen=True):
    """A group of a list."""

    group: str
    kind: str
    state: str


class GroupList(msgspec.Struct, frozen=True):
    """All groups of the cluster."""

    groups: Sequence[ListedGroup]


class TopicList(msgspec.Struct, frozen=True):
    """The names of all topics."""

    topics: Sequence[str]


def _known(state: str | None, states: Sequence[str]) -> None:
    if state is not None and state not in states:
        raise invalid(f"there is no state {state!r}{nearest(state, list(states))}; {', '.join(states)}")


def group_operations(kit: Kit) -> list[Operation]:
    """Groups."""
    groups = kit.groups

    async def every() -> GroupList:
        return GroupList([ListedGroup(**each) for each in await groups.listed()])

    async def one(
        group: str,
        wait: str | None = None,
        members: int | None = None,
        topic: str | None = None,
        partition: int | None = None,
        member: str | None = None,
        offset: int | None = None,
        lag: int | None = None,
        timeout: float | None = None,
    ) -> GroupView:
        _known(wait, STATES)
        if topic is None and (partition is not None or offset is not None):
            raise invalid("partition and offset need a topic")
        wanted = GroupWait(
            state=wait, members=members, topic=topic, partition=partition, member=member, offset=offset, lag=lag
        )
        if wanted == GroupWait():
            return await groups.view(group)
        view: GroupView | None = None
        problem: Problem | None = None

        async def is_reached() -> bool:
            nonlocal view, problem
            try:
                view, problem = await groups.view(group), None
            except Problem as error:  # The coordinator may be loading.
                problem = error
                return False
            return groups.is_reached(view, wanted)

        seconds = seconds_of(timeout)
        if not await kit.polls.until(is_reached, seconds):
            state = "unknown" if view is None else view.state
            why = "" if problem is None else f": {problem.detail}"
            members_now = 0 if view is None else len(view.members)
            raise timed_out(
                f"the group {group!r} is {state} with {members_now} members after {seconds:g} s, not as waited for{why}",
                view,
            )
        assert view is not None
        return view

    waits = (
        Parameter("wait", str, f"A state: {', '.join(STATES)}."),
        Parameter("members", int, "So many members."),
        Parameter("topic", str, "The assignment covers it; with partition, this one; with member, of the member."),
        Parameter("partition", int, "Of the topic."),
        Parameter("member", str, "A member id, an instance id or a client id."),
        Parameter("offset", int, "The committed offset of the topic's partition (0 by default) is this one or later."),
        Parameter("lag", int, "The lag of each committed partition (of the topic) is at most this."),
        TIMEOUT,
    )
    return [
        Operation("GET", "/groups", "List the groups.", every, answer=GroupList),
        Operation(
            "GET",
            "/groups/{group}",
            "Show a group of any kind, or wait until it is as all the parameters say.",
            one,
            answer=GroupView,
            query=waits,
            problems=(409, 422, 503),
        ),
    ]


def transaction_operations(kit: Kit) -> list[Operation]:
    """Transactions."""

    async def one(transactional_id: str, wait: str | None = None, timeout: float | None = None) -> TransactionView:
        _known(wait, TRANSACTION_STATES)
        if wait is None:
            return await transaction_view(kit.inside, transactional_id)
        view: TransactionView | None = None

        async def is_reached() -> bool:
            nonlocal view
            try:
                view = await transaction_view(kit.inside, transactional_id)
            except Problem:
                return False
            return has_state(view, wait)

        if not await kit.polls.until(is_reached, seconds_of(timeout)):
            state = "unknown" if view is None else view.state
            raise timed_out(f"the transactional id {transactional_id!r} is {state}, not {wait}", view)
        assert view is not None
        return view

    return [
        Operation(
            "GET",
            "/transactions/{transactional_id}",
            "Show a transactional id, or wait for a state.",
            one,
            answer=TransactionView,
            query=(Parameter("wait", str, f"A state: {', '.join(TRANSACTION_STATES)}."), TIMEOUT),
            problems=(409, 422, 503),
        )
    ]


def topic_operations(kit: Kit) -> list[Operation]:
    """Topics and records."""
    topics = kit.topics

    async def create(body: NewTopic) -> Response:
        view = await topics.create(body)
        return Response(201, msgspec.json.encode(view), headers={"Location": f"/topics/{view.name}"})

    async def every() -> TopicList:
        return TopicList(topics.names())

    async def one(
        topic: str, wait: Literal["exists", "absent"] | None = None, timeout: float | None = None
    ) -> TopicView | None:
        if wait is None:
            return topics.view(topic)
        _known(wait, ("exists", "absent"))

        async def is_reached() -> bool:
            try:
                view = topics.view(topic)
            except Problem:
                return wait == "absent"
            return wait == "exists" and all(each.leader >= 0 for each in view.partitions)

        if not await kit.polls.until(is_reached, seconds_of(timeout)):
            state = None if wait == "exists" else topics.view(topic)
            raise timed_out(f"the topic {topic!r} is {'not there' if wait == 'exists' else 'still there'}", state)
        return topics.view(topic) if wait == "exists" else None

    async def delete(topic: str) -> None:
        await topics.delete(topic)

    async def write(topic: str, body: NewRecords) -> Response:
        return Response(201, msgspec.json.encode(await topics.write(topic, body)))

    async def read(
        topic: str,
        partition: int = 0,
        offset: int = -1,
        limit: int = RECORDS_SHOWN,
        isolation: str = "read_uncommitted",
        wait: int | None = None,
        timeout: float | None = None,
    ) -> ReadRecords:
        _known(isolation, ("read_uncommitted", "read_committed"))
        is_committed = isolation == "read_committed"
        found = await topics.read(topic, partition, offset, limit, is_committed=is_committed)
        if wait is None:
            return found

        async def is_reached() -> bool:
            nonlocal found
            found = await topics.read(topic, partition, offset, limit, is_committed=is_committed)
            return len(found.records) >= wait

        if not await kit.polls.until(is_reached, seconds_of(timeout)):
            raise timed_out(f"{topic}-{partition} has {len(found.records)} records and not {wait}", found)
        return found

    path = "/topics/{topic}"
    records = (
        Parameter("partition", int, "0 by default."),
        Parameter("offset", int, "The start of the log by default."),
        Parameter("limit", int, f"{RECORDS_SHOWN} by default."),
        Parameter("isolation", str, "read_uncommitted by default, or read_committed."),
        Parameter("wait", int, "Answer when there are so many."),
        TIMEOUT,
    )
    exists = Parameter("wait", str, "exists (everywhere, with leaders) or absent.")
    return [
        Operation("POST", "/topics", "Create a topic.", create, NewTopic, TopicView, 201, problems=(422,)),
        Operation("GET", "/topics", "List the topics.", every, answer=TopicList),
        Operation(
            "GET",
            path,
            "Show a topic, or wait for it.",
            one,
            answer=TopicView,
            query=(exists, TIMEOUT),
            problems=(404, 409),
        ),
        Operation("DELETE", path, "Delete a topic. One that is not there is no error.", delete),
        Operation(
            "POST", f"{path}/records", "Write records.", write, NewRecords, WrittenRecords, 201, problems=(404, 422)
        ),
        Operation(
            "GET",
            f"{path}/records",
            "Read records of a partition.",
            read,
            answer=ReadRecords,
            query=records,
            problems=(404, 409, 422),
        ),
    ]
