"""
DescribeClientQuotas (48), versions 0 and 1: there are no quotas, so a valid filter finds nothing.

Source: KIP-546; Kafka ClientQuotasImage.describe, DescribeClientQuotasRequest.
"""

from typing import Final

from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.wire import messages as m

_EXACT, _DEFAULT, _ANY = range(3)
_USER, _CLIENT_ID, _IP = "user", "client-id", "ip"
_TYPES: Final = (_USER, _CLIENT_ID, _IP)


def describe_client_quotas(
    request: m.DescribeClientQuotasRequest, _context: Context, _reply: Reply[m.DescribeClientQuotasResponse]
) -> m.DescribeClientQuotasResponse:
    try:
        _check(request)
    except CoordinatorError as error:
        return m.DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return m.DescribeClientQuotasResponse(error_message="", entries=())


def _check(request: m.DescribeClientQuotasRequest) -> None:
    """
    Raises:
        CoordinatorError: INVALID_REQUEST or UNSUPPORTED_VERSION, with Kafka's message.
    """
    seen: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in _TYPES:
            raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component.match_type, component.match)
        seen.add(kind)
    if _IP in seen and len(seen) > 1:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )


def _check_match(match_type: int, match: str | None) -> None:
    if match_type == _EXACT:
        if match is None:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
    elif match_type not in (_DEFAULT, _ANY):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
    elif match is not None:
        name = "MATCH_TYPE_DEFAULT" if match_type == _DEFAULT else "MATCH_TYPE_SPECIFIED"
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string."
        )
