"""
CreateDelegationToken (38), versions 1 to 3, RenewDelegationToken (39), ExpireDelegationToken (40), versions 1 and 2, and
DescribeDelegationToken (41), versions 1 to 3: refused, because the client has not authenticated itself.

Source: KIP-48, KIP-373; Kafka KafkaApis.allowTokenRequests.
"""

from typing import Final

from kohort.broker.ports import Context
from kohort.machine.shard import Reply
from kohort.model.errors import ErrorCode
from kohort.model.ids import ANONYMOUS
from kohort.wire import messages as m

_REFUSED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_USER: Final = "User"
_NO_TIME: Final = -1


def create_delegation_token(
    request: m.CreateDelegationTokenRequest, _context: Context, _reply: Reply[m.CreateDelegationTokenResponse]
) -> m.CreateDelegationTokenResponse:
    """Refuse; the owner of the answer is the requested one, or the requester if none is given."""
    has_owner = bool(request.owner_principal_name)
    return m.CreateDelegationTokenResponse(
        error_code=_REFUSED,
        principal_type=(request.owner_principal_type or "") if has_owner else _USER,
        principal_name=(request.owner_principal_name or "") if has_owner else ANONYMOUS,
        token_requester_principal_type=_USER,
        token_requester_principal_name=ANONYMOUS,
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


def renew_delegation_token(
    _request: m.RenewDelegationTokenRequest, _context: Context, _reply: Reply[m.RenewDelegationTokenResponse]
) -> m.RenewDelegationTokenResponse:
    return m.RenewDelegationTokenResponse(error_code=_REFUSED, expiry_timestamp_ms=_NO_TIME)


def expire_delegation_token(
    _request: m.ExpireDelegationTokenRequest, _context: Context, _reply: Reply[m.ExpireDelegationTokenResponse]
) -> m.ExpireDelegationTokenResponse:
    return m.ExpireDelegationTokenResponse(error_code=_REFUSED, expiry_timestamp_ms=_NO_TIME)


def describe_delegation_token(
    _request: m.DescribeDelegationTokenRequest, _context: Context, _reply: Reply[m.DescribeDelegationTokenResponse]
) -> m.DescribeDelegationTokenResponse:
    return m.DescribeDelegationTokenResponse(error_code=_REFUSED)
