"""
DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 1 to 3: refused, because there is no authorizer.

An element with an unknown enumeration value closes the connection, as in Kafka, where such a request cannot be parsed.

Source: Kafka AclApis; DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest.
"""

from collections.abc import Generator, Iterable
from typing import Final

from kohort.broker.ports import Context, NoResponse
from kohort.machine.gradual import HANDLER_STEP, chunks
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.wire import messages as m

_RESOURCE_TYPES: Final = range(1, 8)
_PATTERN_TYPES: Final = range(1, 5)
_OPERATIONS: Final = range(1, 16)
_PERMISSIONS: Final = range(1, 4)
_DESCRIBE_REFUSAL: Final = "No Authorizer is configured on the broker"
_CHANGE_REFUSAL: Final = "No Authorizer is configured."


def describe_acls(
    request: m.DescribeAclsRequest, _context: Context, _reply: Reply[m.DescribeAclsResponse]
) -> m.DescribeAclsResponse | NoResponse:
    if not _are_known([_kinds_of(request)]):
        return NoResponse.CLOSE_CONNECTION
    return m.DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=_DESCRIBE_REFUSAL)


def create_acls(
    request: m.CreateAclsRequest, _context: Context, _reply: Reply[m.CreateAclsResponse]
) -> Generator[None, None, m.CreateAclsResponse | NoResponse]:
    for creations in chunks(request.creations, HANDLER_STEP):
        if not _are_known(
            (one.resource_type, one.resource_pattern_type, one.operation, one.permission_type) for one in creations
        ):
            return NoResponse.CLOSE_CONNECTION
        if len(creations) == HANDLER_STEP:
            yield
    refusal = m.CreateAclsResponseAclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=_CHANGE_REFUSAL
    )
    return m.CreateAclsResponse(results=[refusal] * len(request.creations))


def delete_acls(
    request: m.DeleteAclsRequest, _context: Context, _reply: Reply[m.DeleteAclsResponse]
) -> Generator[None, None, m.DeleteAclsResponse | NoResponse]:
    for filters in chunks(request.filters, HANDLER_STEP):
        if not _are_known(map(_kinds_of, filters)):
            return NoResponse.CLOSE_CONNECTION
        if len(filters) == HANDLER_STEP:
            yield
    refusal = m.DeleteAclsFilterResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=_CHANGE_REFUSAL)
    return m.DeleteAclsResponse(filter_results=[refusal] * len(request.filters))


def _kinds_of(wanted: m.DescribeAclsRequest | m.DeleteAclsFilter) -> tuple[int, int, int, int]:
    return wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type


def _are_known(kinds: Iterable[tuple[int, int, int, int]]) -> bool:
    """Whether resource types, pattern types, operations and permissions are known ones."""
    return all(
        resource in _RESOURCE_TYPES
        and pattern in _PATTERN_TYPES
        and operation in _OPERATIONS
        and permission in _PERMISSIONS
        for resource, pattern, operation, permission in kinds
    )
