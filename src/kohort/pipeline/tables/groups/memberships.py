"""
Intervals of memberships and of ownership of partitions, for every kind of group.

Classic groups write both in their GroupMetadata records, as a whole each time. Consumer, share and streams groups write records
per member (its metadata, its current assignment), and tombstones when it leaves. Streams groups assign tasks: a partition of a
subtopology, as active task or as a copy of its state (standby, or warmup until it has caught up).

Either way the log is a sequence of snapshots: a set of items from some log offset on. `intervals` turns snapshots into rows
with a start and an end; `until_ms` is null if the item is there at the end of the log.

Source: Apache Kafka 4.2.1, GroupMetadataManager; KIP-848, KIP-932, KIP-1071.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from kohort.pipeline.decode.schemas import COORDINATOR, GROUP_METADATA
from kohort.pipeline.engines.dispatch import Window, fn, over_frames
from kohort.pipeline.tables.contract import COLUMNS
from kohort.pipeline.tables.groups.group_history import CLASSIC, CURRENT, MEMBER_METADATA, record_types

_MEMBER_RECORDS = record_types(MEMBER_METADATA)
_ASSIGNMENT_RECORDS = record_types(CURRENT)
ACTIVE, STANDBY, WARMUP = "active", "standby", "warmup"
_TASKS = {"activeTasks": ACTIVE, "standbyTasks": STANDBY, "warmupTasks": WARMUP}
"""The roles of tasks, by the field that lists them."""

_MEMBER = "struct<instanceId:string,clientId:string,clientHost:string,rackId:string>"
_ASSIGNMENT = (
    "struct<memberEpoch:int,assignedPartitions:array<struct<topicId:string,partitions:array<int>>>,"
    + ",".join(f"{name}:array<struct<subtopologyId:string,partitions:array<int>>>" for name in _TASKS)
    + ">"
)
_PLACE = "struct<member_id:string,topic:string,topic_id:string,subtopology:string,partition:int,role:string>"
_NAMES = "struct<member_id:string,instance_id:string,client_id:string,client_host:string>"


@over_frames
def intervals(snapshots: Any, *, keys: Sequence[str]) -> Any:
    """
    Return `keys`, the fields of the items, `since_ms`, `until_ms`, `first_log_offset`.

    Args:
        snapshots: `keys`, `log_offset`, `timestamp_ms`, `items` (array of structs) from this record on.
    """
    in_order = Window.partitionBy(*keys).orderBy("log_offset")
    numbered = snapshots.select(*keys, "log_offset", "timestamp_ms", "items").withColumn(
        "number", fn.row_number().over(in_order)
    )
    numbered = numbered.withColumn("next_ms", fn.lead("timestamp_ms").over(in_order))
    items = numbered.withColumn("item", fn.explode(fn.array_distinct("items")))
    of_item = Window.partitionBy(*keys, "item").orderBy("log_offset")
    # In consecutive snapshots both numbers grow by one; after a snapshot without the item their difference changes.
    stay = items.withColumn("stay", fn.col("number") - fn.row_number().over(of_item))
    return (
        stay.groupBy(*keys, "item", "stay")
        .agg(
            fn.min("timestamp_ms").alias("since_ms"),
            fn.max_by(fn.struct("next_ms"), "log_offset")["next_ms"].alias("until_ms"),
            fn.min("log_offset").alias("first_log_offset"),
        )
        .select(*keys, "item.*", "since_ms", "until_ms", "first_log_offset")
    )


@over_frames
def member_intervals(records: Any) -> Any:
    """
    Return one row for every interval of a membership.

    Args:
        records: `group_history.INPUT_COLUMNS`.
    """
    classic = _classic(records, fn.transform("members", _names), _NAMES)
    told = fn.from_json("value", _MEMBER)
    name = fn.struct(
        "member_id",
        told["instanceId"].alias("instance_id"),
        told["clientId"].alias("client_id"),
        told["clientHost"].alias("client_host"),
    )
    modern = _modern(records, _MEMBER_RECORDS, fn.array(name), _NAMES)
    return _both(classic, modern, "members")


@over_frames
def assignment_intervals(records: Any) -> Any:
    """
    Return one row for every interval in which a member owned a partition or a task.

    Records of classic groups have topic names, other records topic ids. `subtopology` and `role` are null except for streams
    groups. Partitions pending revocation do not count as owned.

    Args:
        records: `group_history.INPUT_COLUMNS`.
    """
    classic = _classic(records, fn.flatten(fn.transform("members", _classic_places)), _PLACE)
    told = fn.from_json("value", _ASSIGNMENT)
    listed = [fn.transform(told["assignedPartitions"], _modern_places)]
    listed += [fn.transform(told[name], partial(_tasks, role)) for name, role in _TASKS.items()]
    places = fn.concat(*(fn.coalesce(fn.flatten(one), fn.array().cast(f"array<{_PLACE}>")) for one in listed))
    modern = _modern(records, _ASSIGNMENT_RECORDS, places, _PLACE)
    return _both(classic, modern, "assignments")


def _classic(records: Any, items: Any, item_type: str) -> Any:
    """Return the snapshots of classic groups."""
    ours = _snapshots(records.where(fn.col("kind") == GROUP_METADATA), items, item_type)
    return ours.withColumn("group_type", fn.lit(CLASSIC))


def _modern(records: Any, types: dict[str, str], items: Any, item_type: str) -> Any:
    """Return the snapshots of single members."""
    kinds = fn.create_map(*(fn.lit(word) for pair in types.items() for word in pair))
    is_ours = (fn.col("kind") == COORDINATOR) & fn.col("record_type").isin(*types)
    ours = _snapshots(records.where(is_ours), items, item_type)
    return ours.withColumn("group_type", kinds[fn.col("record_type")]).withColumnRenamed("member_id", "of_member")


def _snapshots(records: Any, items: Any, item_type: str) -> Any:
    """Add the items; a tombstone is an empty snapshot."""
    there, nothing = fn.when(~fn.col("tombstone"), items), fn.array()
    return records.withColumn("items", fn.coalesce(*(one.cast(f"array<{item_type}>") for one in (there, nothing))))


def _both(classic: Any, modern: Any, table: str) -> Any:
    keys = ("log_partition", "group", "group_type")
    of_groups, of_members = intervals(classic, keys=keys), intervals(modern, keys=(*keys, "of_member"))
    return of_groups.select(*COLUMNS[table]).unionByName(of_members.select(*COLUMNS[table]))


def _names(member: Any) -> Any:
    return fn.struct(member.member_id, member.instance_id, member.client_id, member.client_host)


def _classic_places(member: Any) -> Any:
    assigned = fn.coalesce(member.assigned, fn.array().cast("array<struct<topic:string,partition:int>>"))
    return fn.transform(
        assigned,
        lambda place: _place(member.member_id, place.partition, topic=place.topic),
    )


def _modern_places(topic: Any) -> Any:
    return fn.transform(
        topic.partitions,
        lambda partition: _place(fn.col("member_id"), partition, topic_id=topic.topicId),
    )


def _tasks(role: str, subtopology: Any) -> Any:
    return fn.transform(
        subtopology.partitions,
        lambda partition: _place(
            fn.col("member_id"), partition, subtopology=subtopology.subtopologyId, role=fn.lit(role)
        ),
    )


def _place(member_id: Any, partition: Any, **named: Any) -> Any:
    """Return a struct of type `_PLACE`; fields without an argument are null."""
    nothing = fn.lit(None).cast("string")
    return fn.struct(
        member_id.alias("member_id"),
        *(named.get(name, nothing).alias(name) for name in ("topic", "topic_id", "subtopology")),
        partition.alias("partition"),
        named.get("role", nothing).alias("role"),
    )
