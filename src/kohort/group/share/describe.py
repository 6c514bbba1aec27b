"""
ShareGroupDescribe (77), version 1: the members of share groups and their partitions.

Source: Kafka GroupMetadataManager.shareGroupDescribe, ShareGroup.asDescribedGroup.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import msgspec

from kohort.group.context import GroupContext
from kohort.group.groups import SHARE, group_of_kind
from kohort.group.share.group import ASSIGNOR, ShareGroup
from kohort.group.share.member import ShareMember
from kohort.machine.gradual import HANDLER_STEP
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.image import ClusterImage
from kohort.wire import messages as m

Described = m.ShareGroupDescribeResponseDescribedGroup


class GroupPicture(NamedTuple):
    """
    A group as of an offset of the log. Its values are immutable, so that the members can be described in steps.

    Attributes:
        group: described without its members.
    """

    group: m.ShareGroupDescribeResponseDescribedGroup
    members: Sequence[ShareMember]
    image: ClusterImage


def describe_failed(
    group_id: str, code: ErrorCode, message: str | None = None
) -> m.ShareGroupDescribeResponseDescribedGroup:
    return Described(group_id=group_id, error_code=int(code), error_message=message)


def picture_of(
    context: GroupContext, group_id: str, *, committed_offset: int
) -> GroupPicture | m.ShareGroupDescribeResponseDescribedGroup:
    """The picture of a group as of an offset of the log; the answer with the error, if there is no such share group."""
    try:
        group = group_of_kind(context.groups.get_at(group_id, committed_offset), group_id, SHARE, ShareGroup)
    except CoordinatorError as error:
        return describe_failed(group_id, error.code, error.message)
    described = Described(
        group_id=group_id,
        group_state=group.state_name_at(committed_offset),
        group_epoch=group.epoch.get_at(committed_offset),
        assignment_epoch=group.assignment_epoch.get_at(committed_offset),
        assignor_name=ASSIGNOR,
    )
    members = [member for _, member in group.members.items_at(committed_offset)]
    return GroupPicture(described, members, context.image)


def describe_in_steps(picture: GroupPicture) -> Generator[None, None, m.ShareGroupDescribeResponseDescribedGroup]:
    """Describe a group with its members."""
    described = []
    topics = 0
    for member in picture.members:
        described.append(_describe_member(member, picture.image))
        topics += 1 + len(member.assigned)
        if topics >= HANDLER_STEP:
            topics = 0
            yield
    return msgspec.structs.replace(picture.group, members=tuple(described))


def _describe_member(member: ShareMember, image: ClusterImage) -> m.ShareGroupDescribeResponseMember:
    """Topics that do not exist any more are left out."""
    found = ((image.topic_by_id(topic_id), partitions) for topic_id, partitions in member.assigned.items())
    topics = tuple(
        m.ShareGroupDescribeResponseTopicPartitions(
            topic_id=topic.topic_id, topic_name=topic.name, partitions=partitions
        )
        for topic, partitions in found
        if topic is not None
    )
    return m.ShareGroupDescribeResponseMember(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topic_names)),
        assignment=m.ShareGroupDescribeResponseAssignment(topic_partitions=topics),
    )
