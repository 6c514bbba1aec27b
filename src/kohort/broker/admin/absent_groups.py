"""
The APIs of share groups (76 to 79, 83 to 87, 90 to 92) and streams groups (88, 89): answered as by a Kafka whose features
`share.version` and `streams.version` have level 0, and whose topic `__share_group_state` does not exist.

Source: KIP-932, KIP-1071; Kafka KafkaApis.isShareGroupProtocolEnabled, ShareCoordinatorService.
"""

from collections.abc import Generator, Iterable
from typing import Any, Final

from kohort.broker.ports import Context, Handler
from kohort.machine.gradual import HANDLER_STEP
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_REFUSED: Final = ErrorCode.UNSUPPORTED_VERSION
_MESSAGE: Final = "The version of API is not supported."


def absent_group_handlers() -> Iterable[tuple[ApiKey, Handler]]:
    """The handlers of all these APIs."""
    for api, response in (
        (ApiKey.SHARE_GROUP_HEARTBEAT, m.ShareGroupHeartbeatResponse(error_code=_REFUSED)),
        (ApiKey.SHARE_FETCH, m.ShareFetchResponse(error_code=_REFUSED)),
        (ApiKey.SHARE_ACKNOWLEDGE, m.ShareAcknowledgeResponse(error_code=_REFUSED)),
        (ApiKey.STREAMS_GROUP_HEARTBEAT, m.StreamsGroupHeartbeatResponse(error_code=_REFUSED, status=())),
        (
            ApiKey.ALTER_SHARE_GROUP_OFFSETS,
            m.AlterShareGroupOffsetsResponse(error_code=_REFUSED, error_message=_MESSAGE),
        ),
        (
            ApiKey.DELETE_SHARE_GROUP_OFFSETS,
            m.DeleteShareGroupOffsetsResponse(error_code=_REFUSED, error_message=_MESSAGE),
        ),
    ):
        yield api, _always(response)
    yield ApiKey.SHARE_GROUP_DESCRIBE, _describe_share_groups
    yield ApiKey.STREAMS_GROUP_DESCRIBE, _describe_streams_groups
    yield ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, _describe_share_group_offsets
    for api, verb, what in (
        (ApiKey.INITIALIZE_SHARE_GROUP_STATE, "initialize", ""),
        (ApiKey.READ_SHARE_GROUP_STATE, "read", ""),
        (ApiKey.WRITE_SHARE_GROUP_STATE, "write", ""),
        (ApiKey.DELETE_SHARE_GROUP_STATE, "delete", ""),
        (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "read", " summary"),
    ):
        yield api, _NoShareState(api, verb, what)


def _always(response: Any) -> Handler:
    return lambda _request, _context, _reply: response


def _describe_share_groups(
    request: m.ShareGroupDescribeRequest, _context: Context, _reply: Reply[m.ShareGroupDescribeResponse]
) -> Generator[None, None, m.ShareGroupDescribeResponse]:
    described = m.ShareGroupDescribeResponseDescribedGroup
    groups = yield from _refused(described(error_code=_REFUSED, group_id=group_id) for group_id in request.group_ids)
    return m.ShareGroupDescribeResponse(groups=groups)


def _describe_streams_groups(
    request: m.StreamsGroupDescribeRequest, _context: Context, _reply: Reply[m.StreamsGroupDescribeResponse]
) -> Generator[None, None, m.StreamsGroupDescribeResponse]:
    described = m.StreamsGroupDescribeResponseDescribedGroup
    groups = yield from _refused(described(error_code=_REFUSED, group_id=group_id) for group_id in request.group_ids)
    return m.StreamsGroupDescribeResponse(groups=groups)


def _describe_share_group_offsets(
    request: m.DescribeShareGroupOffsetsRequest, _context: Context, _reply: Reply[m.DescribeShareGroupOffsetsResponse]
) -> Generator[None, None, m.DescribeShareGroupOffsetsResponse]:
    described = m.DescribeShareGroupOffsetsResponseGroup
    groups = yield from _refused(described(error_code=_REFUSED, group_id=group.group_id) for group in request.groups)
    return m.DescribeShareGroupOffsetsResponse(groups=groups)


def _refused(results: Iterable[Any]) -> Generator[None, None, list[Any]]:
    made = []
    for result in results:
        made.append(result)
        if len(made) % HANDLER_STEP == 0:
            yield
    return made


class _NoShareState:
    """Refusal of one API of share group state: this node is the coordinator of no share group."""

    def __init__(self, api: ApiKey, verb: str, what: str) -> None:
        name = api.api_name
        self._message = f"Unable to {verb} share group state{what}: This is not the correct coordinator."
        self._response = getattr(m, f"{name}Response")
        action = name.removesuffix("Summary").split("Share")[0]
        suffix = "SummaryResult" if name.endswith("Summary") else "Result"
        self._topic = getattr(m, f"{name}Response{action}State{suffix}")
        self._partition = getattr(m, f"{name}ResponsePartitionResult")

    def __call__(self, request: Any, _context: Context, _reply: Reply[Any]) -> Generator[None, None, Any]:
        results = []
        count = 0
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                partitions.append(
                    self._partition(
                        partition=asked.partition, error_code=ErrorCode.NOT_COORDINATOR, error_message=self._message
                    )
                )
                count += 1
                if count % HANDLER_STEP == 0:
                    yield
            results.append(self._topic(topic_id=topic.topic_id, partitions=partitions))
            count += 1
            if count % HANDLER_STEP == 0:
                yield
        return self._response(results=results)
