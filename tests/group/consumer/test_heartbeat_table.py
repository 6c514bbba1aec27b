"""
The answer to a heartbeat, by the member's kind, the epoch that it sends, and the state of its group.

Groups are loaded from records, so that every member is exactly as the table says.

Source: Kafka GroupMetadataManager.consumerGroupHeartbeat, throwIfConsumerGroupMemberEpochIsInvalid, CurrentAssignmentBuilder;
what Apache Kafka 4.2.1 answered to raw frames.
"""

from collections.abc import Iterable
from typing import Any

import pytest

from kohort.group.consumer.group import ConsumerGroup
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from tests.group.consumer.states import GROUP, ORDERS, REBALANCE_MS, Known, group_of
from tests.group.harness import Answer, Coordinator

# Columns: the epoch that is sent, and the partitions that the member says it owns.
#   0       joins, owns nothing                    above     one above the known epoch
#   now     the known epoch, owns what it should   below     an epoch long ago
#   now -   the known epoch, tells nothing         -1, -2    leaves, for good or for a while
#   prev <  the previous epoch, owns a part        -3        no epoch
#   prev >  the previous epoch, owns too much
#   prev -  the previous epoch, tells nothing
COLUMNS = ("0", "now", "now -", "prev <", "prev >", "prev -", "above", "below", "-1", "-2", "-3")

# Cells: the epoch of the answer, then the state of the member afterwards (S STABLE, V UNREVOKED, L UNRELEASED, - gone), then
# + if the answer shows the assignment. FENCED is FENCED_MEMBER_EPOCH, INST is FENCED_INSTANCE_ID, HELD is
# UNRELEASED_INSTANCE_ID, WHO is UNKNOWN_MEMBER_ID, NONE is GROUP_ID_NOT_FOUND, BAD is INVALID_REQUEST.
TABLE = """
kind             group       | 0    now    now -  prev < prev > prev - above  below  -1   -2   -3
no group         missing     | 2S+  NONE   NONE   NONE   NONE   NONE   NONE   NONE   NONE BAD  BAD
no group static  missing     | 2S+  NONE   NONE   NONE   NONE   NONE   NONE   NONE   NONE NONE BAD
unknown          empty       | 6S+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  BAD  BAD
unknown static   empty       | 6S+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  WHO  BAD
unknown          empty class | 2S+  NONE   NONE   NONE   NONE   NONE   NONE   NONE   NONE BAD  BAD
unknown static   empty class | 2S+  NONE   NONE   NONE   NONE   NONE   NONE   NONE   NONE NONE BAD
unknown          classic     | NONE NONE   NONE   NONE   NONE   NONE   NONE   NONE   NONE BAD  BAD
unknown static   classic     | NONE NONE   NONE   NONE   NONE   NONE   NONE   NONE   NONE NONE BAD
unknown          stable      | 6L+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  BAD  BAD
unknown          assigning   | 7L+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  BAD  BAD
unknown          reconciling | 6L+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  BAD  BAD
unknown static   stable      | 6L+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  WHO  BAD
unknown static   assigning   | 7L+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  WHO  BAD
unknown static   reconciling | 6L+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  WHO  BAD
stable           stable      | 5S+  5S     5S     5S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
stable           assigning   | 6S+  6S     6S     6S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
stable           reconciling | 5S+  5S     5S     5S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
behind           reconciling | 5S+  4V+    4V+    5S+    FENCED FENCED FENCED FENCED -1-  BAD  BAD
unrevoked        reconciling | 5S+  5S     4V     5S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
unrevoked        assigning   | 6S+  6S     4V     6S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
unreleased       reconciling | 5L+  5L     5L     5L     FENCED FENCED FENCED FENCED -1-  BAD  BAD
unreleased       assigning   | 6L+  6L     6L     6L     FENCED FENCED FENCED FENCED -1-  BAD  BAD
released         reconciling | 5S+  5S+    5S+    5S+    FENCED FENCED FENCED FENCED -1-  BAD  BAD
static           stable      | HELD 5S     5S     5S     FENCED FENCED FENCED FENCED -1-  -2S  BAD
static           assigning   | HELD 6S     6S     6S     FENCED FENCED FENCED FENCED -1-  -2S  BAD
static           reconciling | HELD 5S     5S     5S     FENCED FENCED FENCED FENCED -1-  -2S  BAD
static unrevoked reconciling | HELD 5S     4V     5S     FENCED FENCED FENCED FENCED -1-  -2V  BAD
static unnamed   stable      | 5S+  5S     5S     5S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
static unnamed   assigning   | 6S+  6S     6S     6S     FENCED FENCED FENCED FENCED -1-  BAD  BAD
static other id  stable      | HELD INST   INST   INST   INST   INST   INST   INST   INST INST BAD
static other id  assigning   | HELD INST   INST   INST   INST   INST   INST   INST   INST INST BAD
away             reconciling | 5S+  FENCED FENCED FENCED FENCED FENCED FENCED FENCED -1-  -2S  BAD
away             assigning   | 6S+  FENCED FENCED FENCED FENCED FENCED FENCED FENCED -1-  -2S  BAD
away other id    reconciling | 5S+  INST   INST   INST   INST   INST   INST   INST   INST INST BAD
away other id    assigning   | 6S+  INST   INST   INST   INST   INST   INST   INST   INST INST BAD
away unnamed     reconciling | 5S+  FENCED FENCED FENCED FENCED FENCED FENCED FENCED -1-  BAD  BAD
unknown state    reconciling | 5S+  FENCED FENCED FENCED FENCED FENCED FENCED FENCED -1-  BAD  BAD
unknown state    assigning   | 6S+  FENCED FENCED FENCED FENCED FENCED FENCED FENCED -1-  BAD  BAD
dynamic takes    stable      | 5S+  WHO    WHO    WHO    WHO    WHO    WHO    WHO    WHO  WHO  BAD
"""
CODES = {
    "FENCED": ErrorCode.FENCED_MEMBER_EPOCH,
    "INST": ErrorCode.FENCED_INSTANCE_ID,
    "HELD": ErrorCode.UNRELEASED_INSTANCE_ID,
    "WHO": ErrorCode.UNKNOWN_MEMBER_ID,
    "NONE": ErrorCode.GROUP_ID_NOT_FOUND,
    "BAD": ErrorCode.INVALID_REQUEST,
}
STATES = {0: "S", 1: "V", 2: "L", 127: "U"}
SENT_BELOW = 2

# The member under test is `a`; its target is half of the topic, and `b` has the other half.
HALF: dict[str, Any] = {"target": (0, 1)}
MEMBERS = {
    "stable": Known("a", 5, 4, 0, (0, 1), **HALF),
    "behind": Known("a", 4, 3, 0, (0, 1, 2), **HALF),
    "unrevoked": Known("a", 4, 3, 1, (0, 1), (2,), **HALF),
    "unreleased": Known("a", 5, 4, 2, (0,), **HALF),
    "released": Known("a", 5, 4, 2, (0,), **HALF),
    "static": Known("a", 5, 4, 0, (0, 1), instance="i", **HALF),
    "static unrevoked": Known("a", 4, 3, 1, (0, 1), (2,), instance="i", **HALF),
    "away": Known("a", -2, 4, 0, (0, 1), instance="i", **HALF),
    "unknown state": Known("a", 5, 4, 9, (0, 1), **HALF),
}
OTHERS = {
    "behind": Known("b", 5, 4, 2, (3,), target=(2, 3)),
    "unrevoked": Known("b", 5, 4, 2, (3,), target=(2, 3)),
    "static unrevoked": Known("b", 5, 4, 2, (3,), target=(2, 3)),
    "unreleased": Known("b", 4, 3, 1, (2, 3), (1,), target=(2, 3)),
    "released": Known("b", 5, 4, 0, (2, 3), target=(2, 3)),
}
SAME_AS = {
    "static unnamed": "static",
    "static other id": "static",
    "away other id": "away",
    "away unnamed": "away",
    "dynamic takes": "stable",
}


def rows() -> Iterable[tuple[str, str, str, str]]:
    for line in TABLE.strip().splitlines()[1:]:
        left, _, right = line.partition("|")
        cells = right.split()
        assert len(cells) == len(COLUMNS), line
        for column, cell in zip(COLUMNS, cells, strict=True):
            yield left[:17].strip(), left[17:].strip(), column, cell


ROWS = list(rows())


def prepare(kind: str, group: str) -> Coordinator:
    if group == "missing":
        return Coordinator()
    if group == "empty":
        return group_of([])
    if group in ("empty class", "classic"):
        coordinator = Coordinator()
        # Only members of protocol type "consumer" can become members of a consumer group.
        member_id = coordinator.new_member_id(protocol_type="connect")
        coordinator.join(member_id, protocol_type="connect")
        coordinator.wait_initial_delay()
        if group == "empty class":
            coordinator.leave((member_id, None))
        return coordinator
    kind = SAME_AS.get(kind, kind)
    member = MEMBERS.get(kind)
    if member is None:
        members = [Known("c", 5, 4, 0, (0, 1), target=(0, 1)), Known("b", 5, 4, 0, (2, 3), target=(2, 3))]
    else:
        members = [member, OTHERS.get(kind, Known("b", 5, 4, 0, (2, 3), target=(2, 3)))]
    if group == "reconciling" and kind in ("stable", "static", "unknown", "unknown static"):
        members[-1] = Known("b", 4, 3, 0, (2, 3), target=(2, 3))
    coordinator = group_of(members, epoch=6 if group == "assigning" else 5)
    assert coordinator.listed() == {GROUP: group.capitalize()}
    return coordinator


def send(coordinator: Coordinator, kind: str, column: str, version: int) -> Answer:
    member = MEMBERS.get(SAME_AS.get(kind, kind), MEMBERS["stable"])
    now, previous = (5 if member.epoch == -2 else member.epoch), member.previous
    everything = (0, 1, 2, 3)
    epoch, owned = {
        "0": (0, ()),
        "now": (now, member.assigned),
        "now -": (now, None),
        "prev <": (previous, member.assigned[:1]),
        "prev >": (previous, everything),
        "prev -": (previous, None),
        "above": (now + 1, member.assigned),
        "below": (SENT_BELOW, member.assigned),
        "-1": (-1, None),
        "-2": (-2, None),
        "-3": (-3, None),
    }[column]
    entry = m.ConsumerGroupHeartbeatRequestTopicPartitions
    fields: dict[str, Any] = {
        "group_id": GROUP,
        "member_id": "z" if kind.endswith("other id") else "a",
        "member_epoch": epoch,
        "topic_partitions": None if owned is None else [entry(topic_id=ORDERS, partitions=owned)] if owned else [],
    }
    if kind.startswith(("static", "away")) and not kind.endswith("unnamed"):
        fields["instance_id"] = "i"
    elif kind in ("no group static", "unknown static", "dynamic takes"):
        fields["instance_id"] = "new"
    if column == "0":
        fields |= {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["orders"]}
    return coordinator.ask("consumer_group_heartbeat", m.ConsumerGroupHeartbeatRequest(**fields), version=version)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("row", range(len(ROWS)), ids=lambda row: " ".join(ROWS[row]))
def test_every_cell(row: int, version: int) -> None:
    kind, group_state, column, cell = ROWS[row]
    coordinator = prepare(kind, group_state)
    end = coordinator.end
    answer = send(coordinator, kind, column, version)
    if cell in CODES:
        assert (answer.code, coordinator.end) == (CODES[cell], end)
        assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
        return
    assert answer.code is ErrorCode.NONE, answer.error_message
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, ConsumerGroup)
    member = group.members.get(answer.member_id)
    state = "-" if member is None else STATES[member.state]
    assert f"{answer.member_epoch}{state}{'+' if answer.assignment is not None else ''}" == cell
    assert answer.heartbeat_interval_ms == (0 if answer.member_epoch < 0 else 5_000)
    if member is not None:
        assert member.epoch == answer.member_epoch


def test_the_fenced_member_is_told_both_epochs() -> None:
    coordinator = prepare("stable", "stable")
    text = "The member must abandon all its partitions and rejoin."
    assert send(coordinator, "stable", "above", 1).error_message == (
        f"The consumer group member has a greater member epoch (6) than the one known by the group coordinator (5). {text}"
    )
    assert send(coordinator, "stable", "below", 1).error_message == (
        f"The consumer group member has a smaller member epoch (2) than the one known by the group coordinator (5). {text}"
    )
