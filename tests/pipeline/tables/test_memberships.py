"""Who was in a group, and who owned what, from when to when."""

import json
from typing import Any

import pyarrow as pa

from kohort.pipeline.tables.groups import group_history, memberships, ownership
from tests.pipeline import frames


def classic(log_offset: int, at_ms: int, members: dict[str, list[int]] | None) -> frames.Row:
    """A GroupMetadata record: members with the partitions of `t` that they have; None is a tombstone."""
    listed = [
        {
            "member_id": name,
            "client_id": name.upper(),
            "client_host": "/h",
            "assigned": [{"topic": "t", "partition": partition} for partition in partitions],
        }
        for name, partitions in (members or {}).items()
    ]
    row = {"kind": "group_metadata", "log_partition": 0, "log_offset": log_offset, "timestamp_ms": at_ms, "group": "c"}
    return row | {"tombstone": members is None, "members": None if members is None else listed}


def modern(log_offset: int, at_ms: int, record_type: str, member: str, value: dict[str, Any] | None) -> frames.Row:
    row = {"kind": "coordinator", "log_partition": 0, "log_offset": log_offset, "timestamp_ms": at_ms, "group": "m"}
    row |= {"record_type": record_type, "member_id": member, "tombstone": value is None}
    return row | {"value": None if value is None else json.dumps(value)}


def assignment(topic_id: str, *partitions: int) -> dict[str, Any]:
    return {"memberEpoch": 3, "assignedPartitions": [{"topicId": topic_id, "partitions": list(partitions)}]}


HISTORY = [
    classic(0, 10, {}),
    classic(1, 20, {"a": [0, 1]}),
    classic(2, 30, {"a": [0], "b": [1]}),
    classic(3, 40, {"b": [0, 1]}),
    classic(4, 50, {"a": [0], "b": [1]}),
    classic(5, 60, None),
    classic(6, 70, {"b": [0]}),
]


def test_stays_in_a_classic_group(engine: Any) -> None:
    frame = memberships.member_intervals(frames.records(engine, group_history.INPUT_COLUMNS, HISTORY))
    assert frames.tuples(frame, "group_type", "member_id", "client_id", "since_ms", "until_ms") == [
        ("classic", "a", "A", 20, 40),
        ("classic", "a", "A", 50, 60),
        ("classic", "b", "B", 30, 60),
        ("classic", "b", "B", 70, None),
    ]


def test_partitions_in_a_classic_group(engine: Any) -> None:
    frame = memberships.assignment_intervals(frames.records(engine, group_history.INPUT_COLUMNS, HISTORY))
    assert frames.tuples(frame, "member_id", "topic", "partition", "since_ms", "until_ms") == [
        ("a", "t", 0, 20, 40),
        ("a", "t", 0, 50, 60),
        ("a", "t", 1, 20, 30),
        ("b", "t", 0, 40, 50),
        ("b", "t", 0, 70, None),
        ("b", "t", 1, 30, 60),
    ]


def test_members_of_groups_that_the_coordinator_assigns(engine: Any) -> None:
    name = {"instanceId": "i", "clientId": "x", "clientHost": "/h", "rackId": None}
    rows = [
        modern(0, 10, "ConsumerGroupMemberMetadata", "a", name),
        # Its subscription changes; it stays.
        modern(1, 20, "ConsumerGroupMemberMetadata", "a", name),
        modern(2, 25, "ConsumerGroupMemberMetadata", "b", name | {"instanceId": None}),
        modern(3, 30, "ConsumerGroupMemberMetadata", "a", None),
        modern(4, 40, "ConsumerGroupMemberMetadata", "a", name),
        modern(5, 50, "StreamsGroupMemberMetadata", "s", name),
        modern(6, 60, "ShareGroupMemberMetadata", "q", {"clientId": "y", "clientHost": "/h"}),
    ]
    frame = memberships.member_intervals(frames.records(engine, group_history.INPUT_COLUMNS, rows))
    assert frames.tuples(frame, "group_type", "member_id", "instance_id", "client_id", "since_ms", "until_ms") == [
        ("consumer", "a", "i", "x", 10, 30),
        ("consumer", "a", "i", "x", 40, None),
        ("consumer", "b", None, "x", 25, None),
        ("share", "q", None, "y", 60, None),
        ("streams", "s", "i", "x", 50, None),
    ]


def tasks(role: str, subtopology: str, *partitions: int) -> dict[str, Any]:
    listed = [{"subtopologyId": subtopology, "partitions": list(partitions), "assignmentEpochs": [3] * len(partitions)}]
    return {"memberEpoch": 3, f"{role}Tasks": listed}


def test_tasks_of_streams_groups(engine: Any) -> None:
    kind = "StreamsGroupCurrentMemberAssignment"
    rows = [
        modern(0, 10, kind, "a", tasks("active", "0", 0, 1)),
        modern(1, 20, kind, "b", tasks("warmup", "0", 1)),
        # What it has been asked to give up is its own no longer.
        modern(2, 30, kind, "a", tasks("active", "0", 0) | {"activeTasksPendingRevocation": [{"subtopologyId": "0"}]}),
        modern(3, 40, kind, "b", tasks("active", "0", 1) | tasks("standby", "1", 0)),
        modern(4, 50, kind, "a", None),
    ]
    frame = memberships.assignment_intervals(frames.records(engine, group_history.INPUT_COLUMNS, rows))
    assert frames.tuples(frame, "member_id", "subtopology", "partition", "role", "since_ms", "until_ms") == [
        ("a", "0", 0, "active", 10, 50),
        ("a", "0", 1, "active", 10, 30),
        ("b", "0", 1, "active", 40, None),
        ("b", "0", 1, "warmup", 20, 40),
        ("b", "1", 0, "standby", 40, None),
    ]
    assert {(row["topic"], row["topic_id"], row["group_type"]) for row in frame.toArrow().to_pylist()} == {
        (None, None, "streams")
    }
    # Copies own nothing: nobody had task 0_1 for ten milliseconds.
    gone = ownership.time_without_owner(frame, at_ms=60)
    assert frames.tuples(gone, "subtopology", "partition", "since_ms", "until_ms", "unowned_ms") == [
        ("0", 0, 50, None, 10),
        ("0", 1, 30, 40, 10),
    ]
    moved = ownership.partition_flapping(frame)
    assert frames.tuples(moved, "subtopology", "partition", "stays", "moves") == [("0", 0, 1, 0), ("0", 1, 2, 1)]


def test_a_static_member_that_comes_back_is_the_same_owner(engine: Any) -> None:
    """Restarting it moves nothing; another one does, and so does whoever has no instance id."""
    stays = [
        ("a1", 0, 10, 0),
        ("a2", 10, 20, 0),
        ("b1", 20, 30, 0),
        ("a3", 30, None, 0),
        ("c", 0, 5, 1),
        ("d", 5, None, 1),
    ]
    names = {"a1": "a", "a2": "a", "a3": "a", "b1": "b", "c": None, "d": None}
    text, number = pa.string(), pa.int64()
    owned = pa.schema(
        [(name, text) for name in ("group", "group_type", "member_id", "topic", "topic_id", "subtopology", "role")]
    )
    for name in ("partition", "since_ms", "until_ms", "first_log_offset"):
        owned = owned.append(pa.field(name, number))
    rows: list[frames.Row] = [
        {"group": "g", "group_type": "consumer", "member_id": who, "topic": "t", "partition": partition}
        | {"since_ms": since, "until_ms": until, "first_log_offset": since}
        for who, since, until, partition in stays
    ]
    there = pa.schema([("group", text), ("member_id", text), ("instance_id", text)])
    members: list[frames.Row] = [{"group": "g", "member_id": who, "instance_id": name} for who, name in names.items()]
    found = ownership.partition_flapping(
        frames.of_schema(engine, owned, rows), frames.of_schema(engine, there, members)
    )
    assert frames.tuples(found, "partition", "stays", "owners", "moves", "returns") == [
        (0, 4, 2, 2, 1),
        (1, 2, 2, 1, 0),
    ]


def test_partitions_of_groups_that_the_coordinator_assigns(engine: Any) -> None:
    kind = "ConsumerGroupCurrentMemberAssignment"
    rows = [
        modern(0, 10, kind, "a", assignment("T", 0, 1)),
        modern(1, 20, kind, "a", assignment("T", 0)),
        modern(2, 30, kind, "b", assignment("T", 1)),
        modern(3, 40, kind, "a", None),
    ]
    frame = memberships.assignment_intervals(frames.records(engine, group_history.INPUT_COLUMNS, rows))
    assert frames.tuples(frame, "group_type", "member_id", "topic_id", "partition", "since_ms", "until_ms") == [
        ("consumer", "a", "T", 0, 10, 40),
        ("consumer", "a", "T", 1, 10, 20),
        ("consumer", "b", "T", 1, 30, None),
    ]
