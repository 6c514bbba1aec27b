"""
DescribeAcls (29), CreateAcls (30) and DeleteAcls (31), versions 1 to 3.

Without an authorizer they are refused. An element with the code 0 closes the connection, as in Kafka, where such a request
cannot be parsed. Who may call them is in `kohort.broker.access`.

Source: KIP-140; Kafka AclApis, AclControlManager, DescribeAclsRequest, CreateAclsRequest, DeleteAclsRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from enum import IntEnum
from functools import partial
from typing import Final, TypeAlias, TypeVar

from kohort.broker.acls.stored_acls import StoredAcls, check_name, checked, deleted, stored
from kohort.broker.catalog.changes import DEFAULT_TIMEOUT_MS, Changes, Decided, verdict
from kohort.broker.catalog.view import CatalogChange
from kohort.broker.ports import Context, NoResponse
from kohort.machine.gradual import HANDLER_STEP, chunks, has_any
from kohort.machine.shard import Reply
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import ACL_CHANGES_MAX, ACL_FILTER_STEPS_MAX, ACL_MATCHES_MAX, ACLS_MAX
from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.acls.filters import ANY, MATCH, AclFilter, selected
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m

_NO_AUTHORIZER: Final = "No Authorizer is configured"
_TOO_MANY_CREATIONS: Final = CoordinatorError(
    ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
)
_NO_ROOM: Final = CoordinatorError(ErrorCode.POLICY_VIOLATION, f"At most {ACLS_MAX} access rules can be stored.")
_TOO_MANY_DELETIONS: Final = f"Cannot remove more than {ACL_CHANGES_MAX} acls in a single delete operation."
_TOO_MANY_STEPS: Final = (
    "The filters look at too many access rules; name resources or principals in them, or send fewer."
)

_Creation: TypeAlias = m.CreateAclsRequestAclCreation
_Filter: TypeAlias = m.DescribeAclsRequest | m.DeleteAclsFilter
_Result: TypeAlias = m.CreateAclsResponseAclCreationResult
E = TypeVar("E", bound=IntEnum)

_FILTERED_TYPES: Final = frozenset((ANY, *ResourceType))
_FILTERED_PATTERNS: Final = frozenset((ANY, MATCH, *PatternType))
_FILTERED_OPERATIONS: Final = frozenset((ANY, *Operation))
_FILTERED_PERMISSIONS: Final = frozenset((ANY, *Permission))


class AclApis:
    """
    Handlers of the APIs.

    Args:
        acls: None without an authorizer.
    """

    def __init__(self, acls: StoredAcls | None, changes: Changes) -> None:
        self._acls = acls
        self._changes = changes

    def describe_acls(
        self, request: m.DescribeAclsRequest, _context: Context, _reply: Reply[m.DescribeAclsResponse]
    ) -> Generator[None, None, m.DescribeAclsResponse | NoResponse]:
        """Describe the ACLs that a filter selects, by resource."""
        if 0 in _codes_of(request):
            return NoResponse.CLOSE_CONNECTION
        if self._acls is None:
            return m.DescribeAclsResponse(
                error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{_NO_AUTHORIZER} on the broker"
            )
        resources: list[m.DescribeAclsResource] = []
        found: list[m.DescribeAclsResponseAclDescription] = []
        resource = None
        for number, acl in enumerate(self._selected(request), 1):
            if acl is not None and acl[:3] != resource:
                resource, found = acl[:3], []
                resources.append(_resource(acl, found))
            if acl is not None:
                found.append(_description(acl))
            if number % HANDLER_STEP == 0:
                yield
        return m.DescribeAclsResponse(error_message="", resources=resources)

    def create_acls(
        self, request: m.CreateAclsRequest, _context: Context, reply: Reply[m.CreateAclsResponse]
    ) -> Generator[None, None, m.CreateAclsResponse | NoResponse | None]:
        """Create ACLs; each is decided by itself."""
        creations = request.creations
        if (yield from has_any(0 in _codes_of_creation(one) for one in creations)):
            return NoResponse.CLOSE_CONNECTION
        acls = self._acls
        if acls is None:
            refusal = _Result(error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{_NO_AUTHORIZER}.")
            return m.CreateAclsResponse(results=[refusal] * len(creations))
        decided: list[tuple[_Creation, Acl | CoordinatorError]] = []
        new: set[Acl] = set()
        for creation in creations:
            outcome = _created(creation)
            decided.append((creation, outcome))
            if isinstance(outcome, Acl) and not acls.is_stored(outcome):
                new.add(outcome)
            if len(decided) % HANDLER_STEP == 0:
                yield
        if len(new) > ACL_CHANGES_MAX:
            decided = [(one, _TOO_MANY_CREATIONS if isinstance(outcome, Acl) else outcome) for one, outcome in decided]
        parts = list(chunks(decided, HANDLER_STEP))
        return (
            yield from self._changes.make_in_parts(
                parts, partial(_creation, acls), DEFAULT_TIMEOUT_MS, _creation_response, reply
            )
        )

    def delete_acls(
        self, request: m.DeleteAclsRequest, _context: Context, reply: Reply[m.DeleteAclsResponse]
    ) -> Generator[None, None, m.DeleteAclsResponse | NoResponse | None]:
        """Delete the ACLs that filters select; each filter's answer has those that were there before."""
        filters = request.filters
        if (yield from has_any(0 in _codes_of(one) for one in filters)):
            return NoResponse.CLOSE_CONNECTION
        if self._acls is None:
            return _all_refused(filters, ErrorCode.SECURITY_DISABLED, f"{_NO_AUTHORIZER}.")
        results: list[m.DeleteAclsFilterResult] = []
        deleting: dict[Acl, None] = {}
        steps = matches = 0
        for wanted in filters:
            unknown = _unknown(wanted)
            matching: list[m.DeleteAclsMatchingAcl] = []
            for acl in self._selected(wanted) if unknown is None else ():
                steps += 1
                if acl is not None:
                    matches += 1
                    deleting[acl] = None
                    matching.append(_matching(acl))
                if len(deleting) > ACL_CHANGES_MAX:
                    return _all_refused(filters, ErrorCode.INVALID_REQUEST, _TOO_MANY_DELETIONS)
                if steps > ACL_FILTER_STEPS_MAX or matches > ACL_MATCHES_MAX:
                    return _all_refused(filters, ErrorCode.INVALID_REQUEST, _TOO_MANY_STEPS)
                if steps % HANDLER_STEP == 0:
                    yield
            code = ErrorCode.NONE if unknown is None else ErrorCode.INVALID_REQUEST
            results.append(m.DeleteAclsFilterResult(error_code=code, error_message=unknown, matching_acls=matching))
            if len(results) % HANDLER_STEP == 0:
                yield
        respond = partial(_deletion_response, results)
        parts = list(chunks(list(deleting), HANDLER_STEP))
        return (yield from self._changes.make_in_parts(parts, _deletion, DEFAULT_TIMEOUT_MS, respond, reply))

    def _selected(self, wanted: _Filter) -> Iterator[Acl | None]:
        assert self._acls is not None
        if _unknown(wanted) is not None:
            return iter(())
        return selected(
            self._acls.index,
            AclFilter(
                wanted.resource_type_filter,
                wanted.resource_name_filter,
                wanted.pattern_type_filter,
                wanted.principal_filter,
                wanted.host_filter,
                wanted.operation,
                wanted.permission_type,
            ),
        )


def _codes_of(wanted: _Filter) -> tuple[int, int, int, int]:
    return wanted.resource_type_filter, wanted.pattern_type_filter, wanted.operation, wanted.permission_type


def _codes_of_creation(creation: _Creation) -> tuple[int, int, int, int]:
    return creation.resource_type, creation.resource_pattern_type, creation.operation, creation.permission_type


def _unknown(wanted: _Filter) -> str | None:
    """The part of a filter that no ACL can have, in Kafka's words; None if all its codes are known."""
    if wanted.resource_type_filter not in _FILTERED_TYPES or wanted.pattern_type_filter not in _FILTERED_PATTERNS:
        return "Unknown patternFilter."
    if wanted.operation not in _FILTERED_OPERATIONS or wanted.permission_type not in _FILTERED_PERMISSIONS:
        return "Unknown entryFilter."
    return None


def _created(creation: _Creation) -> Acl | CoordinatorError:
    """The ACL of a creation, or why it is refused."""
    codes = _codes_of_creation(creation)
    if ANY in codes or creation.resource_pattern_type == MATCH:
        # Kafka fails the whole request, without a message.
        return CoordinatorError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    try:
        return checked(_acl(creation))
    except ConfigError as error:
        return CoordinatorError(ErrorCode.INVALID_REQUEST, str(error))


def _acl(creation: _Creation) -> Acl:
    """
    Raises:
        ConfigError: a code is unknown.
    """
    check_name(creation.resource_type, creation.resource_name)
    return Acl(
        _known(ResourceType, creation.resource_type, "resourceType"),
        _known(PatternType, creation.resource_pattern_type, "patternType"),
        creation.resource_name,
        creation.principal,
        creation.host,
        _known(Operation, creation.operation, "operation"),
        _known(Permission, creation.permission_type, "permissionType"),
    )


def _known(kind: type[E], code: int, name: str) -> E:
    try:
        return kind(code)
    except ValueError:
        raise ConfigError(f"Invalid {name} UNKNOWN") from None


def _creation(
    acls: StoredAcls, decided: Decided[_Creation, Acl]
) -> tuple[CatalogChange, Callable[[ErrorCode], list[_Result]]]:
    """The change of some creations, and their results."""
    new = {acl: stored(acl) for _, acl in decided if isinstance(acl, Acl) and not acls.is_stored(acl)}
    room = ACLS_MAX - acls.count
    if len(new) > room:
        fitting = set(list(new)[: max(room, 0)])
        decided = [(one, _NO_ROOM if acl in new and acl not in fitting else acl) for one, acl in decided]
        new = {acl: setting for acl, setting in new.items() if acl in fitting}
    return CatalogChange(settings=tuple(new.values())), partial(_creation_results, decided)


def _creation_results(decided: Decided[_Creation, Acl], failure: ErrorCode) -> list[_Result]:
    results = []
    for _, outcome in decided:
        code, message = verdict(outcome, failure)
        results.append(_Result(error_code=code, error_message="" if code == ErrorCode.NONE else message))
    return results


def _creation_response(results: Sequence[_Result]) -> m.CreateAclsResponse:
    return m.CreateAclsResponse(results=results)


def _deletion(acls: Sequence[Acl]) -> tuple[CatalogChange, Callable[[ErrorCode], list[ErrorCode]]]:
    return CatalogChange(settings=tuple(map(deleted, acls))), lambda code: [code]


def _deletion_response(results: Sequence[m.DeleteAclsFilterResult], codes: Sequence[ErrorCode]) -> m.DeleteAclsResponse:
    """The answer; a deletion that failed is that of the whole request."""
    failure = next((code for code in codes if code != ErrorCode.NONE), ErrorCode.NONE)
    if failure != ErrorCode.NONE:
        return _all_refused(results, failure, None)
    return m.DeleteAclsResponse(filter_results=results)


def _all_refused(filters: Sequence[object], code: ErrorCode, message: str | None) -> m.DeleteAclsResponse:
    refusal = m.DeleteAclsFilterResult(error_code=code, error_message=message)
    return m.DeleteAclsResponse(filter_results=[refusal] * len(filters))


def _resource(acl: Acl, found: list[m.DescribeAclsResponseAclDescription]) -> m.DescribeAclsResource:
    return m.DescribeAclsResource(
        resource_type=acl.resource_type, resource_name=acl.name, pattern_type=acl.pattern, acls=found
    )


def _description(acl: Acl) -> m.DescribeAclsResponseAclDescription:
    return m.DescribeAclsResponseAclDescription(
        principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
    )


def _matching(acl: Acl) -> m.DeleteAclsMatchingAcl:
    return m.DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
