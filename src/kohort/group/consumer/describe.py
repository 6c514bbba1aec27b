"""
ConsumerGroupDescribe (69), versions 0 and 1: the members of a group, their assignments and their targets.

1 adds the protocol of each member.

Source: Kafka GroupMetadataManager.consumerGroupDescribe, ConsumerGroup.asDescribedGroup.
"""

from collections.abc import Generator, Iterable, Sequence
from typing import NamedTuple

import msgspec

from kohort.group.assignors.specs import NO_ASSIGNMENT, Assignment
from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember, preferred_assignor
from kohort.group.context import GroupContext
from kohort.group.groups import CONSUMER, group_of_kind
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import CoordinatorError
from kohort.model.image import ClusterImage
from kohort.wire import messages as m

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


class GroupPicture(NamedTuple):
    """
    A group as of an offset of the log. Its values are immutable, so that the members can be described in steps.

    Attributes:
        group: described without its members.
        members: each with its target.
    """

    group: m.ConsumerGroupDescribeResponseDescribedGroup
    members: Sequence[tuple[ConsumerMember, Assignment]]
    image: ClusterImage


def picture_of(
    context: GroupContext, group_id: str, *, committed_offset: int
) -> GroupPicture | m.ConsumerGroupDescribeResponseDescribedGroup:
    """The picture of a group as of an offset of the log; the answer with the error, if there is no such consumer group."""
    found = context.groups.get_at(group_id, committed_offset)
    try:
        group = group_of_kind(found, group_id, CONSUMER, ConsumerGroup)
    except CoordinatorError as error:
        return m.ConsumerGroupDescribeResponseDescribedGroup(
            error_code=int(error.code), error_message=error.message, group_id=group_id, group_state=""
        )
    members = [member for _, member in group.members.items_at(committed_offset)]
    described = m.ConsumerGroupDescribeResponseDescribedGroup(
        group_id=group_id,
        group_state=group.state_at(committed_offset).value,
        group_epoch=group.epoch.get_at(committed_offset),
        assignment_epoch=group.assignment_epoch.get_at(committed_offset),
        assignor_name=preferred_assignor(members) or context.assignors[0].name,
    )
    targets = (group.targets.get_at(member.member_id, committed_offset) or NO_ASSIGNMENT for member in members)
    return GroupPicture(described, list(zip(members, targets, strict=True)), context.image)


def describe_in_steps(
    picture: GroupPicture,
) -> Generator[None, None, m.ConsumerGroupDescribeResponseDescribedGroup]:
    """Describe a group with its members."""
    described = []
    topics = 0
    for member, target in picture.members:
        described.append(_describe_member(member, target, picture.image))
        topics += 1 + len(member.assigned) + len(target)
        if topics >= HANDLER_STEP:
            topics = 0
            yield
    return msgspec.structs.replace(picture.group, members=tuple(described))


def _describe_member(
    member: ConsumerMember, target: Assignment, image: ClusterImage
) -> m.ConsumerGroupDescribeResponseMember:
    return m.ConsumerGroupDescribeResponseMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        subscribed_topic_regex=member.topic_pattern,
        assignment=_assignment(member.assigned, image),
        target_assignment=_assignment(target, image),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(assignment: Assignment, image: ClusterImage) -> m.ConsumerGroupDescribeResponseAssignment:
    return m.ConsumerGroupDescribeResponseAssignment(topic_partitions=tuple(_topics(assignment, image)))


def _topics(assignment: Assignment, image: ClusterImage) -> Iterable[m.ConsumerGroupDescribeResponseTopicPartitions]:
    """The topics of an assignment; deleted ones are left out."""
    for topic_id, partitions in assignment.items():
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            yield m.ConsumerGroupDescribeResponseTopicPartitions(
                topic_id=topic_id, topic_name=topic.name, partitions=partitions
            )
