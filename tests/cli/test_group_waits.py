"""Which member of a consumer group waits for which, as it follows from epochs and assignments."""

import pytest

from kohort.cli.groups.queries import GroupMember
from kohort.cli.groups.waiting import find_waits
from kohort.model.ids import TopicPartition


def p(*numbers: int) -> list[TopicPartition]:
    return [TopicPartition("orders", number) for number in numbers]


# fmt: off
CASES = [
    # what, members (id, epoch, assignment, target) at target epoch 2, waits (member, partition, for)
    ("reconciled",                  [("a", 2, p(0, 1), p(0, 1)), ("b", 2, p(2, 3), p(2, 3))], []),
    ("not told to revoke yet",      [("a", 1, p(0, 1, 2, 3), p(0, 1)), ("b", 2, [], p(2, 3))],
                                    [("b", 2, ("a",)), ("b", 3, ("a",))]),
    ("revoking, which is hidden",   [("a", 1, p(0, 1), p(0, 1)), ("b", 2, [], p(2, 3))], [("b", 2, ("a",)), ("b", 3, ("a",))]),
    ("revoked",                     [("a", 2, p(0, 1), p(0, 1)), ("b", 2, [], p(2, 3))], [("b", 2, ()), ("b", 3, ())]),
    ("one of several revokes",      [("a", 1, p(0), p(0)), ("b", 1, p(1), p(1)), ("c", 2, [], p(2))], [("c", 2, ("a", "b"))]),
    ("the owner is away",           [("a", -2, p(0, 1), p(0)), ("b", 2, [], p(1))], [("b", 1, ("a",))]),
    ("away and nothing to revoke",  [("a", -2, p(0), p(0)), ("b", 2, [], p(1))], [("b", 1, ())]),
    ("it has to revoke itself",     [("a", 1, p(0), p(0, 1))], [("a", 1, ())]),
    ("an exchange",                 [("a", 1, p(0), p(1)), ("b", 1, p(1), p(0))], [("a", 1, ("b",)), ("b", 0, ("a",))]),
    ("no members",                  [], []),
]
# fmt: on


@pytest.mark.parametrize(("members", "waits"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_waits(
    members: list[tuple[str, int, list[TopicPartition], list[TopicPartition]]],
    waits: list[tuple[str, int, tuple[str, ...]]],
) -> None:
    described = [
        GroupMember(member_id, None, "", "", None, assignment, epoch=epoch, target=target)
        for member_id, epoch, assignment, target in members
    ]
    found = find_waits(described, 2)
    assert [(wait.member_id, wait.partition.partition, wait.waits_for) for wait in found] == waits
