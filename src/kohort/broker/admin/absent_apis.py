"""
The APIs of what this broker does not have, refused as by a Kafka without it.

- SASL: SaslHandshake (17), versions 0 and 1, and SaslAuthenticate (36), versions 0 to 2, because no listener uses it.
- Share groups (76 to 79, 90 to 92) and streams groups (88, 89): answered as by a Kafka whose features `share.version` and
  `streams.version` have level 0. A broker that serves share groups answers so while `share.version` has level 0.
- Descriptions of topologies: StreamsGroupTopologyDescriptionUpdate (93), version 0, because no plugin stores them.

Source: KIP-43, KIP-152, KIP-932, KIP-1071, KIP-1331; Kafka KafkaApis.handleSaslHandshakeRequest,
handleSaslAuthenticateRequest, isShareGroupProtocolEnabled.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final

from kohort.broker.ports import Context, Handler
from kohort.machine.gradual import gathered
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

_NO_GROUPS: Final = ErrorCode.UNSUPPORTED_VERSION
_NO_GROUPS_MESSAGE: Final = "The version of API is not supported."

_REFUSALS: Final[Mapping[ApiKey, Mapping[str, Any]]] = {
    ApiKey.SASL_HANDSHAKE: {"error_code": ErrorCode.ILLEGAL_SASL_STATE},
    ApiKey.SASL_AUTHENTICATE: {
        "error_code": ErrorCode.ILLEGAL_SASL_STATE,
        "error_message": "SaslAuthenticate request received after successful authentication",
    },
    ApiKey.SHARE_GROUP_HEARTBEAT: {"error_code": _NO_GROUPS},
    ApiKey.SHARE_FETCH: {"error_code": _NO_GROUPS},
    ApiKey.SHARE_ACKNOWLEDGE: {"error_code": _NO_GROUPS},
    ApiKey.STREAMS_GROUP_HEARTBEAT: {"error_code": _NO_GROUPS, "status": ()},
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: {
        "error_code": ErrorCode.UNSUPPORTED_VERSION,
        "error_message": "The broker has no streams group topology description plugin configured.",
    },
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: {"error_code": _NO_GROUPS, "error_message": _NO_GROUPS_MESSAGE},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {"error_code": _NO_GROUPS, "error_message": _NO_GROUPS_MESSAGE},
}
"""The fields of answers that depend on nothing in the request."""


WHILE_ENABLED: Final = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""The APIs that are refused while `share.version` has level 0, before permissions are asked for."""


class WhileEnabled:
    """A handler that refuses while its feature has level 0."""

    def __init__(self, level: Callable[[], int], handler: Handler, refuse: Handler) -> None:
        self._level = level
        self.handler = handler
        self._refuse = refuse

    def __call__(self, request: Any, context: Context, reply: Reply[Any]) -> Any:
        return self.handler(request, context, reply) if self._level() else self._refuse(request, context, reply)


class StepwiseWhileEnabled(WhileEnabled):
    """The same of a handler that has `in_steps`; see `kohort.machine.gradual`."""

    def in_steps(self, request: Any, context: Context, reply: Reply[Any]) -> Any:
        handler: Any = self.handler if self._level() else self._refuse
        return getattr(handler, "in_steps", handler)(request, context, reply)


def absent_handlers() -> Iterable[tuple[ApiKey, Handler]]:
    """The handlers of all these APIs."""
    for api, fields in _REFUSALS.items():
        yield api, _always(api, fields)
    yield ApiKey.SHARE_GROUP_DESCRIBE, _describe_groups(ApiKey.SHARE_GROUP_DESCRIBE)
    yield ApiKey.STREAMS_GROUP_DESCRIBE, _describe_groups(ApiKey.STREAMS_GROUP_DESCRIBE)
    yield ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, _describe_share_group_offsets


def _always(api: ApiKey, fields: Mapping[str, Any]) -> Handler:
    return lambda _request, _context, _reply: getattr(m, f"{api.api_name}Response")(**fields)


def _describe_groups(api: ApiKey) -> Handler:
    def refuse(request: Any, _context: Context, _reply: Reply[Any]) -> Generator[None, None, Any]:
        described = getattr(m, f"{api.api_name}ResponseDescribedGroup")
        groups = yield from gathered(described(error_code=_NO_GROUPS, group_id=each) for each in request.group_ids)
        return getattr(m, f"{api.api_name}Response")(groups=groups)

    return refuse


def _describe_share_group_offsets(
    request: m.DescribeShareGroupOffsetsRequest, _context: Context, _reply: Reply[m.DescribeShareGroupOffsetsResponse]
) -> Generator[None, None, m.DescribeShareGroupOffsetsResponse]:
    described = m.DescribeShareGroupOffsetsResponseGroup
    groups = yield from gathered(described(error_code=_NO_GROUPS, group_id=each.group_id) for each in request.groups)
    return m.DescribeShareGroupOffsetsResponse(groups=groups)
