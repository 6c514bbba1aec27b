"""
CreateDelegationToken (38), versions 1 to 3, RenewDelegationToken (39), ExpireDelegationToken (40), versions 1 and 2, and
DescribeDelegationToken (41), versions 1 to 3.

A client without authentication, or one that was authenticated with a token itself, is refused. A change is answered when all
APIs and logins see it.

Source: KIP-48, KIP-373; Kafka KafkaApis.allowTokenRequests, handleCreateTokenRequest; DelegationTokenControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar
from uuid import UUID

from kohort.broker.catalog.catalog import new_topic_id
from kohort.broker.catalog.changes import DEFAULT_TIMEOUT_MS, Changes
from kohort.broker.catalog.view import TOKENS, CatalogChange, Setting
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.ports import Context
from kohort.broker.tokens.token import Token, check_principals, least_end, same
from kohort.broker.tokens.tokens import Tokens
from kohort.machine.gradual import CHUNK, LOOK_STEP, chunks
from kohort.machine.shard import Reply
from kohort.model.errors import CoordinatorError, ErrorCode
from kohort.model.ids import uuid_text
from kohort.model.limits import TOKEN_RENEWERS_MAX, TOKENS_MAX, TOKENS_OF_REQUESTER_MAX
from kohort.model.principals import ANONYMOUS, Principal
from kohort.runtime.ports import Clock
from kohort.security.authorization import Authorizer
from kohort.security.operations import Operation, ResourceType
from kohort.wire import messages as m
from kohort.wire.apis import ApiKey

R = TypeVar("R", m.RenewDelegationTokenResponse, m.ExpireDelegationTokenResponse)

_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_DISABLED: Final = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
_NO_TIME: Final = -1


class TokenApis:
    """
    Handlers of the four APIs.

    Args:
        authorizer: None if everybody may do everything.
        new_id: makes a random id.
    """

    def __init__(
        self,
        tokens: Tokens,
        changes: Changes,
        config: BrokerConfig,
        clock: Clock,
        *,
        authorizer: Authorizer | None = None,
        new_id: Callable[[], UUID] = new_topic_id,
    ) -> None:
        self._tokens = tokens
        self._changes = changes
        self._clock = clock
        self._creating, self._describing = (
            None if authorizer is None else authorizer.for_api(api)
            for api in (ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.DESCRIBE_DELEGATION_TOKEN)
        )
        self._new_id = new_id
        self._period_max_ms = config.get_int("delegation.token.expiry.time.ms")
        self._life_max_ms = config.get_int("delegation.token.max.lifetime.ms")

    def create_delegation_token(
        self,
        request: m.CreateDelegationTokenRequest,
        context: Context,
        reply: Reply[m.CreateDelegationTokenResponse],
    ) -> m.CreateDelegationTokenResponse | None:
        """Make a token for the requester, or for another user if the requester may."""
        requester = context.principal
        owner_type, owner_name = request.owner_principal_type, request.owner_principal_name
        owner = Principal(owner_name, owner_type or "") if owner_name else Principal(requester.name, requester.type)
        # One more than a token may have is enough to refuse them.
        some = request.renewers[: TOKEN_RENEWERS_MAX + 1]
        renewers = tuple(Principal(renewer.principal_name, renewer.principal_type) for renewer in some)
        try:
            self._check_creation(context, owner, renewers, has_type=not owner_name or owner_type is not None)
        except CoordinatorError as error:
            return _created(owner, requester, error.code)
        if not self._tokens.is_enabled:
            return _created(owner, requester, _DISABLED, time_ms=0)
        if not self._has_room(requester):
            return _created(owner, requester, ErrorCode.POLICY_VIOLATION)
        now_ms = self._clock.now_ms()
        max_ms = least_end(now_ms, request.max_lifetime_ms, self._life_max_ms)
        expires_ms = min(max_ms, least_end(now_ms, 0, self._period_max_ms))
        by = Principal(requester.name, requester.type)
        token = Token(uuid_text(self._new_id()), owner, by, renewers, now_ms, expires_ms, max_ms)

        def response(code: ErrorCode) -> m.CreateDelegationTokenResponse:
            return _created(owner, requester, code) if code else self._made(token)

        return self._changes.make(_change(token), DEFAULT_TIMEOUT_MS, response, reply)

    def renew_delegation_token(
        self,
        request: m.RenewDelegationTokenRequest,
        context: Context,
        reply: Reply[m.RenewDelegationTokenResponse],
    ) -> m.RenewDelegationTokenResponse | None:
        """Put off the end of a token, or bring it forward: it is so many milliseconds from now."""
        response = m.RenewDelegationTokenResponse
        now_ms = self._clock.now_ms()
        code, token = self._found(request.hmac, context)
        if token is not None:
            if token.is_expired(now_ms):
                code = ErrorCode.DELEGATION_TOKEN_EXPIRED
            elif not token.is_renewed_by(context.principal):
                code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        if token is None or code:
            return response(error_code=code, expiry_timestamp_ms=_time_of(code))
        expires_ms = min(token.max_ms, least_end(now_ms, request.renew_period_ms, self._period_max_ms))
        return self._end_at(expires_ms, _change(token, expires_ms), response, reply)

    def expire_delegation_token(
        self,
        request: m.ExpireDelegationTokenRequest,
        context: Context,
        reply: Reply[m.ExpireDelegationTokenResponse],
    ) -> m.ExpireDelegationTokenResponse | None:
        """Remove a token at once, for a negative period, or set when it ends."""
        response = m.ExpireDelegationTokenResponse
        now_ms = self._clock.now_ms()
        code, token = self._found(request.hmac, context)
        if token is not None:
            if not token.is_renewed_by(context.principal):
                code = ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            elif request.expiry_time_period_ms >= 0 and token.is_expired(now_ms):
                code = ErrorCode.DELEGATION_TOKEN_EXPIRED
        if token is None or code:
            return response(error_code=code, expiry_timestamp_ms=_time_of(code))
        if request.expiry_time_period_ms < 0:
            expires_ms, change = now_ms, CatalogChange(settings=(Setting(TOKENS, token.token_id, None),))
        else:
            expires_ms = min(token.max_ms, now_ms + request.expiry_time_period_ms)
            change = _change(token, expires_ms)
        return self._end_at(expires_ms, change, response, reply)

    def describe_delegation_token(
        self,
        request: m.DescribeDelegationTokenRequest,
        context: Context,
        _reply: Reply[m.DescribeDelegationTokenResponse],
    ) -> Generator[None, None, m.DescribeDelegationTokenResponse]:
        """Describe the tokens that the requester may see, with their secrets; of the users asked for, or of all for null."""
        refusal = self._refusal(context)
        if refusal:
            return m.DescribeDelegationTokenResponse(error_code=refusal, tokens=())
        owners: set[tuple[str, str]] = set()
        for asked in chunks(request.owners or (), LOOK_STEP):
            owners.update((owner.principal_type, owner.principal_name) for owner in asked)
            yield
        wanted = None if request.owners is None else owners
        found = []
        for number, token in enumerate(list(self._tokens.all()) if wanted is None or wanted else (), 1):
            is_wanted = wanted is None or any(
                (each.type, each.name) in wanted for each in (token.owner, *token.renewers)
            )
            if is_wanted and self._is_shown(token, context):
                found.append(self._described(token))
            if number % CHUNK == 0:
                yield
        return m.DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=found)

    def _end_at(self, expires_ms: int, change: CatalogChange, response: Callable[..., R], reply: Reply[R]) -> R | None:
        """Make a change by which a token ends at a time, and answer with the time."""
        return self._changes.make(
            change,
            DEFAULT_TIMEOUT_MS,
            lambda code: response(error_code=code, expiry_timestamp_ms=0 if code else expires_ms),
            reply,
        )

    def _check_creation(
        self, context: Context, owner: Principal, renewers: tuple[Principal, ...], *, has_type: bool
    ) -> None:
        """
        Raises:
            CoordinatorError: the refusal of a new token, in the order of Kafka's checks.
        """
        if not _is_allowed(context.principal):
            raise CoordinatorError(_NOT_ALLOWED)
        if not has_type:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST)
        is_own = same(owner, context.principal)
        if not is_own and not _may(self._creating, context, Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
            raise CoordinatorError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        check_principals(owner, renewers)

    def _has_room(self, requester: Principal) -> bool:
        return self._tokens.count < TOKENS_MAX and self._tokens.made_by(requester) < TOKENS_OF_REQUESTER_MAX

    def _refusal(self, context: Context) -> ErrorCode:
        if not _is_allowed(context.principal):
            return _NOT_ALLOWED
        return ErrorCode.NONE if self._tokens.is_enabled else _DISABLED

    def _found(self, secret: bytes, context: Context) -> tuple[ErrorCode, Token | None]:
        """The token of a request, or why there is none."""
        refusal = self._refusal(context)
        token = None if refusal else self._tokens.newest(secret)
        return (refusal or ErrorCode.DELEGATION_TOKEN_NOT_FOUND, None) if token is None else (ErrorCode.NONE, token)

    def _is_shown(self, token: Token, context: Context) -> bool:
        asked = self._describing
        return (
            token.is_renewed_by(context.principal)
            or _may(asked, context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
            or _may(asked, context, Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
        )

    def _made(self, token: Token) -> m.CreateDelegationTokenResponse:
        return m.CreateDelegationTokenResponse(
            error_code=ErrorCode.NONE,
            principal_type=token.owner.type,
            principal_name=token.owner.name,
            token_requester_principal_type=token.requester.type,
            token_requester_principal_name=token.requester.name,
            issue_timestamp_ms=token.issued_ms,
            expiry_timestamp_ms=token.expires_ms,
            max_timestamp_ms=token.max_ms,
            token_id=token.token_id,
            hmac=self._tokens.secret(token),
        )

    def _described(self, token: Token) -> m.DescribeDelegationTokenResponseDescribedDelegationToken:
        renewer = m.DescribeDelegationTokenResponseDescribedDelegationTokenRenewer
        return m.DescribeDelegationTokenResponseDescribedDelegationToken(
            principal_type=token.owner.type,
            principal_name=token.owner.name,
            token_requester_principal_type=token.requester.type,
            token_requester_principal_name=token.requester.name,
            issue_timestamp=token.issued_ms,
            expiry_timestamp=token.expires_ms,
            max_timestamp=token.max_ms,
            token_id=token.token_id,
            hmac=self._tokens.secret(token),
            renewers=[renewer(principal_type=each.type, principal_name=each.name) for each in token.renewers],
        )


def _is_allowed(principal: Principal) -> bool:
    return principal.name != ANONYMOUS.name and not principal.is_token


def _may(
    authorizer: Authorizer | None, context: Context, operation: Operation, resource_type: ResourceType, name: str
) -> bool:
    if authorizer is None:
        return True
    host = context.client_host.removeprefix("/")
    # A list leaves out what the user may not see; that is no refusal.
    logs_refusal = operation is Operation.CREATE_TOKENS
    return authorizer.may(context.principal, host, operation, resource_type, name, logs_refusal=logs_refusal)


def _time_of(code: ErrorCode) -> int:
    """The time in a refusal: Kafka's brokers answer -1, its controller 0."""
    return _NO_TIME if code is _NOT_ALLOWED else 0


def _change(token: Token, expires_ms: int | None = None) -> CatalogChange:
    fields = token.stored() if expires_ms is None else token.stored() | {"expires_ms": expires_ms}
    return CatalogChange(settings=(Setting(TOKENS, token.token_id, fields),))


def _created(
    owner: Principal, requester: Principal, code: ErrorCode, *, time_ms: int = _NO_TIME
) -> m.CreateDelegationTokenResponse:
    """The refusal of a new token."""
    return m.CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=time_ms,
        expiry_timestamp_ms=time_ms,
        max_timestamp_ms=time_ms,
    )
