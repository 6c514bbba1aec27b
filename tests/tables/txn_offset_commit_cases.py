"""Cases of TxnOffsetCommit, for Apache Kafka (`record_txn_offset_commits`) and for Kohort (`test_txn_offset_commits`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from kohort.wire import messages as m

TOPIC: Final = "orders"
"""Has four partitions."""
METADATA_MAX: Final = 8
"""The broker's offset.metadata.max.bytes."""
INSTANCE: Final = "one"
"""The instance id of the static member."""

Entry = tuple[int, int, str | None]
"""Partition, offset, metadata."""


class Sender(NamedTuple):
    """
    The member that a request names.

    Attributes:
        generation: added to the generation of the group; None for -1.
        member: "member" for the member of the group, "pending" for an id that was given out and has not joined.
    """

    generation: int | None
    member: str
    instance: str | None = None


CLASSIC_STATES: Final = ("Empty", "PreparingRebalance", "CompletingRebalance", "Stable")
STATES: Final = ("absent", "simple", "consumer", *CLASSIC_STATES)
""""consumer" is a group of the consumer protocol with one member that has all partitions."""
SENDERS: Final = {
    "nobody":            Sender(None, ""),
    "member":            Sender(0, "member"),
    "static member":     Sender(0, "member", INSTANCE),
    "stale generation":  Sender(-1, "member"),
    "future generation": Sender(1, "member"),
    "generation alone":  Sender(0, ""),
    "member alone":      Sender(None, "member"),
    "stranger":          Sender(0, "stranger"),
    "stranger alone":    Sender(None, "stranger"),
    "pending":           Sender(0, "pending"),
    "unknown instance":  Sender(0, "member", "nobody"),
    "fenced":            Sender(0, "an earlier id", INSTANCE),
    "instance alone":    Sender(None, "", INSTANCE),
    "unknown instance alone": Sender(None, "", "nobody"),
}  # fmt: skip

SHAPES: Final[dict[str, tuple[str, Sequence[tuple[str, Sequence[Entry]]]]]] = {
    # the group id, and the topics of the request
    "one partition":             ("group", [(TOPIC, [(0, 5, "")])]),
    "two partitions":            ("group", [(TOPIC, [(1, 5, ""), (0, 6, "")])]),
    "a partition twice":         ("group", [(TOPIC, [(0, 5, ""), (0, 6, "")])]),
    "a topic twice":             ("group", [(TOPIC, [(0, 5, "")]), (TOPIC, [(1, 6, "")])]),
    "a topic and partition twice": ("group", [(TOPIC, [(0, 5, "")]), (TOPIC, [(0, 6, "")])]),
    "null metadata":             ("group", [(TOPIC, [(0, 5, None)])]),
    "long metadata":             ("group", [(TOPIC, [(0, 5, "m" * 8), (1, 6, "m" * 9)])]),
    "long metadata alone":       ("group", [(TOPIC, [(1, 6, "m" * 9)])]),
    "a negative offset":         ("group", [(TOPIC, [(0, -7, "")])]),
    "an unknown partition":      ("group", [(TOPIC, [(9, 5, ""), (0, 6, ""), (-1, 7, "")])]),
    "an unknown topic":          ("group", [("none", [(0, 5, "")]), (TOPIC, [(0, 6, "")])]),
    "unknown topics alone":      ("group", [("none", [(0, 5, "")]), ("none", [(1, 5, "")])]),
    "a topic without name and id": ("group", [("", [(0, 5, "")]), (TOPIC, [(0, 6, "")])]),
    "an unknown topic without partitions": ("group", [("none", []), (TOPIC, [(0, 6, "")])]),
    "a known topic between unknown ones": ("group", [("none", [(3, 5, "")]), (TOPIC, [(9, 5, ""), (1, 6, "")]), ("", [])]),
    "an unknown partition beside its topic": ("group", [(TOPIC, [(0, 5, "")]), (TOPIC, [(9, 6, "")])]),
    "no topics":                 ("group", []),
    "no partitions":             ("group", [(TOPIC, [])]),
    "no partitions beside some": ("group", [(TOPIC, []), (TOPIC, [(0, 5, "")])]),
    "no group":                  ("",      [(TOPIC, [(0, 5, "")])]),
    "no group, unknown topic":   ("",      [("none", [(0, 5, "")]), (TOPIC, [(1, 5, "")])]),
    "no group, unknown topic alone": ("",  [("none", [(0, 5, "")])]),
}  # fmt: skip

PRODUCERS: Final = {
    # transactional id, and changes of producer id and epoch; the coordinator has no partition of the transaction
    "not in the transaction":   ("known",   0,  0),
    "another producer id":      ("known",   9,  0),
    "a negative producer id":   ("known",   None, 0),
    "a later epoch":            ("known",   0,  1),
    "an earlier epoch":         ("known",   0, -1),
    "an unknown id":            ("unknown", 0,  0),
    "no id":                    ("",        0,  0),
}  # fmt: skip
VERSIONS: Final = range(7)
MEMBER_VERSIONS: Final = range(3, 7)
"""Versions whose requests name a member."""
TOPIC_IDS: Final[dict[str, UUID | None]] = {"none": UUID(int=99), "": None}
"""The ids of topics that are not there, for the requests of version 6."""


def request(
    topics: Sequence[tuple[str, Sequence[Entry]]] = ((TOPIC, ((0, 5, ""),)),),
    *,
    group: str = "group",
    transactional_id: str = "known",
    producer: tuple[int, int] = (7, 0),
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    topic_ids: Mapping[str, UUID | None] = TOPIC_IDS,
) -> m.TxnOffsetCommitRequest:
    """A request of any version: version 6 has `topic_ids` in place of the names."""
    return m.TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[
            m.TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=topic_ids.get(name),
                partitions=[
                    m.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=offset, committed_metadata=metadata
                    )
                    for index, offset, metadata in entries
                ],
            )
            for name, entries in topics
        ],
    )


def summary(response: Any, topic_ids: Mapping[str, UUID | None] | None = None) -> list[Any]:
    """
    Topics in the order of the response, each with partitions and error codes.

    Args:
        topic_ids: of a response of version 6, which has ids in place of the names.
    """
    names = {} if topic_ids is None else {topic_id: name for name, topic_id in topic_ids.items()}
    return [
        [
            topic.name if topic_ids is None else names[topic.topic_id],
            [[entry.partition_index, entry.error_code] for entry in topic.partitions],
        ]
        for topic in response.topics
    ]
