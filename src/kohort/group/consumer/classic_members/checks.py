"""
The checks that the requests of members of the classic protocol have in common.

Source: Kafka GroupMetadataManager.throwIfMemberDoesNotUseClassicProtocol,
throwIfGenerationIdUnmatched.
"""

from kohort.group.consumer.group import ConsumerGroup
from kohort.group.consumer.members.member import ConsumerMember
from kohort.group.consumer.members.membership import known_member
from kohort.model.errors import CoordinatorError, ErrorCode


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ConsumerMember:
    """
    The member of the classic protocol that a request names.

    Raises:
        CoordinatorError: UNKNOWN_MEMBER_ID (also for a member of the consumer protocol), FENCED_INSTANCE_ID,
            ILLEGAL_GENERATION.
    """
    member = known_member(group, member_id, instance_id)
    if member.classic is None:
        raise CoordinatorError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    if member.epoch != generation:
        raise CoordinatorError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
    return member
