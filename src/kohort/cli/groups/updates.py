"""Updates of groups: delete offsets, delete groups. Each function returns the error codes of what failed."""

from collections.abc import Iterable

from kohort.client.cluster import Client
from kohort.client.commits import by_topic, errors_of
from kohort.client.connection import refusal
from kohort.model.ids import TopicPartition
from kohort.wire import messages
from kohort.wire.apis import ApiKey


def delete_offsets(client: Client, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """
    Delete committed offsets of a group. A partition without one is not an error.

    Raises:
        CoordinatorError: the coordinator rejected the whole request.
    """
    topics = [
        messages.OffsetDeleteRequestTopic(
            name=topic,
            partitions=[messages.OffsetDeleteRequestPartition(partition_index=each.partition) for each in its],
        )
        for topic, its in by_topic(partitions).items()
    ]
    request = messages.OffsetDeleteRequest(group_id=group_id, topics=topics)
    response = client.send_to_coordinator(
        group_id, ApiKey.OFFSET_DELETE, request, error_code=lambda response: response.error_code
    )
    if response.error_code:
        raise refusal(response.error_code, f"cannot delete offsets of group {group_id}")
    return errors_of(response)


def delete_group(client: Client, group_id: str) -> int:
    """Delete a group with its offsets. Returns the error code, 0 if the group was deleted."""
    request = messages.DeleteGroupsRequest(groups_names=(group_id,))
    response = client.send_to_coordinator(
        group_id, ApiKey.DELETE_GROUPS, request, error_code=lambda response: response.results[0].error_code
    )
    return int(response.results[0].error_code)
