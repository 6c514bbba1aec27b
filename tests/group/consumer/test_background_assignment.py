"""Large groups: their target assignment is computed in the background, and the result is that of a small group."""

from kohort.group.assignors.checking import CheckedAssignor
from kohort.group.assignors.interface import AssignorError
from kohort.group.assignors.specs import GroupAssignment, GroupSpec
from kohort.group.consumer.registry import registry_of
from kohort.group.consumer.target_assignment import RECORDS_AT_ONCE
from kohort.group.events import AssignmentFailed
from kohort.model.errors import ErrorCode
from kohort.records.values import ConsumerGroupTargetAssignmentMember, ConsumerGroupTargetAssignmentMetadata
from kohort.wire import messages as m
from tests.broker.calls import calls
from tests.conftest import watches_calls
from tests.group.consumer.members import Member, consumer_group, settle, state
from tests.group.harness import Coordinator, Topic

LARGE = 6_000


def large() -> Coordinator:
    coordinator = Coordinator()
    topic = coordinator.image.by_name["orders"]
    coordinator.image.by_name["orders"] = Topic("orders", topic.topic_id, LARGE)
    return coordinator


def owned(*members: Member) -> list[int]:
    return [len(member.owned.get("orders", ())) for member in members]


def run(coordinator: Coordinator) -> None:
    """Let what is under way in the background come to its end."""
    coordinator.is_burst = False
    coordinator.node.settle()
    coordinator.advance(5)


def test_the_first_member_of_a_large_group_gets_its_target_at_once() -> None:
    coordinator = large()
    a = Member(coordinator, "a")
    assert a.join().member_epoch == 2
    assert (owned(a), state(coordinator)) == ([LARGE], "Stable")


@watches_calls
def test_a_heartbeat_of_a_member_with_many_partitions_makes_few_calls_for_each() -> None:
    """Each partition has an owner that changes; a heartbeat of the first member made 12 to 15 calls for each, 10 ms in all."""
    coordinator = large()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    counts = [calls(a.join)]
    coordinator.is_burst = True
    b.join()
    run(coordinator)
    b.join()
    counts += [calls(a.beat), calls(a.beat), calls(b.beat)]
    assert owned(a, b) == [LARGE // 2] * 2
    assert max(counts) < 7 * LARGE


def test_a_later_member_joins_at_the_present_epoch_and_gets_its_partitions_with_a_later_heartbeat() -> None:
    coordinator = large()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    coordinator.is_burst = True
    answer = b.join()
    run(coordinator)
    assert (answer.member_epoch, answer.assignment.topic_partitions) == (2, ())
    group = consumer_group(coordinator)
    assert (group.epoch.get(), group.assignment_epoch.get(), state(coordinator)) == (3, 3, "Reconciling")
    b.join()
    settle(a, b)
    assert owned(a, b) == [LARGE // 2] * 2


def test_members_that_join_together_share_runs() -> None:
    coordinator = large()
    members = [Member(coordinator, f"m{number}") for number in range(20)]
    members[0].join()
    settle(members[0])
    end = coordinator.end
    coordinator.is_burst = True
    for member in members[1:]:
        member.join()
    run(coordinator)
    for member in members[1:]:
        member.join()
        run(coordinator)
    epochs = [it for it in coordinator.records(end) if isinstance(it, ConsumerGroupTargetAssignmentMetadata)]
    assert len(epochs) <= 2
    settle(*members)
    assert owned(*members) == [LARGE // 20] * 20


def test_a_member_that_leaves_while_the_target_is_computed_gets_no_target() -> None:
    coordinator = large()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    settle(a)
    coordinator.is_burst = True
    b.join()
    b.leave()
    run(coordinator)
    assert "b" not in consumer_group(coordinator).targets
    settle(a)
    assert owned(a) == [LARGE]


def test_a_group_that_was_deleted_and_made_again_gets_its_own_target() -> None:
    coordinator = large()
    a, b, c = (Member(coordinator, name) for name in "abc")
    a.join()
    coordinator.is_burst = True
    b.join()
    a.leave()
    b.leave()
    coordinator.ask("delete_groups", m.DeleteGroupsRequest(groups_names=["group"]))
    for member in (c, a):
        member.join()
    run(coordinator)
    group = consumer_group(coordinator)
    assert (group.epoch.get(), sorted(group.targets)) == (3, ["c"])
    for member in (c, a):
        member.join()
        run(coordinator)
    settle(c, a)
    assert owned(c, a) == [LARGE // 2] * 2


def test_the_targets_of_many_members_are_written_in_parts_and_their_epoch_last() -> None:
    coordinator = large()
    members = [Member(coordinator, f"m{number:04}") for number in range(RECORDS_AT_ONCE + 10)]
    coordinator.is_burst = True
    for member in members:
        member.join()
    run(coordinator)
    members[0].join()
    run(coordinator)
    records = coordinator.records()
    targets = [it for it in records if isinstance(it, ConsumerGroupTargetAssignmentMember)]
    assert len({it.member_id for it in targets}) == len(members)
    assert isinstance(records[-1], ConsumerGroupTargetAssignmentMetadata) or len(targets) > len(members)
    coordinator.restart()
    assert consumer_group(coordinator).assignment_epoch.get() == consumer_group(coordinator).epoch.get()


class Failing:
    """An assignor that fails as often as it is told."""

    name = "uniform"

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def assign(self, group: GroupSpec, _topics: object, /) -> GroupAssignment:
        if self.failures:
            self.failures -= 1
            raise AssignorError("not today")
        return {member_id: member.assigned for member_id, member in group.members.items()}


def test_the_next_heartbeat_runs_a_failed_assignor_again() -> None:
    coordinator = large()
    a, b = Member(coordinator, "a"), Member(coordinator, "b")
    a.join()
    registry_of(coordinator.shard).assignors[0] = CheckedAssignor(Failing(1))
    b.join()
    (failed,) = [event for event in coordinator.events if isinstance(event, AssignmentFailed)]
    assert (failed.group_id, failed.epoch, failed.error) == ("group", 3, "not today")
    assert state(coordinator) == "Assigning"
    a.beat()
    assert state(coordinator) in ("Reconciling", "Stable")


def test_the_assignor_of_a_small_group_fails_its_heartbeat_and_nothing_is_written() -> None:
    """Past bug 45."""
    coordinator = Coordinator()
    registry_of(coordinator.shard).assignors[0] = CheckedAssignor(Failing(1))
    a = Member(coordinator, "a")
    answer = a.join()
    assert (answer.code, coordinator.end) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
    assert "not today" in answer.error_message
    assert a.join().code is ErrorCode.NONE
