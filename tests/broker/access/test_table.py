"""Every API says who may call it; without an authorizer nothing is asked."""

from typing import Any

import pytest

from kohort.broker.access.checks import AskedLater, Open
from kohort.broker.access.guard import Guard
from kohort.broker.access.table import ACCESS_TABLE
from kohort.broker.admin.absent_apis import WhileEnabled
from kohort.broker.ports import NoResponse
from kohort.model.errors import ErrorCode
from kohort.wire.apis import ApiKey
from tests.broker.access.json_messages import json_of, request_of
from tests.broker.access.matrix import APIS, errors_in, filled, rows
from tests.broker.access.secured import Secured
from tests.broker.harness import Harness
from tests.broker.test_any_request import own_requests

REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPEN = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.API_VERSIONS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}
"""Anybody may call these APIs."""
HANDLER_ASKS = {
    ApiKey.FETCH,
    ApiKey.SHARE_FETCH,
    ApiKey.SHARE_ACKNOWLEDGE,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}


def test_cve_2023_50976_every_api_has_a_row_with_a_check() -> None:
    assert set(ACCESS_TABLE) == set(ApiKey)
    assert all(ACCESS_TABLE.values())
    asked_later = {api for api, checks in ACCESS_TABLE.items() if any(isinstance(one, AskedLater) for one in checks)}
    opened = {api for api, checks in ACCESS_TABLE.items() if any(isinstance(one, Open) for one in checks)}
    assert asked_later == HANDLER_ASKS
    assert opened - asked_later == OPEN
    assert all(one.reason for checks in ACCESS_TABLE.values() for one in checks if isinstance(one, Open))


def test_without_an_authorizer_no_handler_is_wrapped() -> None:
    """A request costs nothing: the handlers are those of their modules."""
    plain, secured = Harness(), Secured()
    plain.host(*secured.factories)
    assert (plain.broker.guard, plain.broker.permit_fetch) == (None, None)
    assert plain.broker.handlers.keys() == secured.broker.handlers.keys()
    for api, handler in plain.broker.handlers.items():
        is_wrapped = any(check.is_asking for check in ACCESS_TABLE[api])
        assert _is_guarded(secured.broker.handlers[api]) == is_wrapped, api.api_name
        assert not _is_guarded(handler), api.api_name


def _is_guarded(handler: Any) -> bool:
    handler = handler.handler if isinstance(handler, WhileEnabled) else handler
    return isinstance(handler, Guard) or isinstance(getattr(handler, "__self__", None), Guard)


@pytest.fixture(scope="module")
def secured() -> Secured:
    broker = Secured()
    broker.create("t", 2)
    return broker


def requests() -> dict[ApiKey, list[tuple[int, Any]]]:
    """Some requests of every API: those of the matrix, and our own."""
    found: dict[ApiKey, list[tuple[int, Any]]] = {}
    for row in rows():
        if row["api"] in APIS and row["version"] <= APIS[row["api"]].newest_stable:
            api = APIS[row["api"]]
            text = filled(row["request"], {"pid": 1, "epoch": 0})
            if "$" not in str(text):
                found.setdefault(api, []).append((row["version"], request_of(api, text)))
    for request in own_requests():
        api = APIS[type(request).__name__.removesuffix("Request")]
        found.setdefault(api, []).append((api.newest_stable, request))
    return found


ALL = requests()


@pytest.mark.parametrize("api", sorted(set(ALL) - OPEN - HANDLER_ASKS), ids=lambda api: api.api_name)
def test_a_user_without_permissions_gets_refusals_and_changes_nothing(api: ApiKey, secured: Secured) -> None:
    """An answer has codes of refusals alone, or no elements, and nothing is appended to any log."""
    before = _ends(secured)
    for version, request in ALL[api]:
        answer = secured.ask_as("nobody", api, request, version)
        if answer is NoResponse.CLOSE_CONNECTION:
            continue
        fields = json_of(api, version, answer)
        codes = set(errors_in(fields)) - {0}
        assert codes <= REFUSALS | HARMLESS.get(api, set()), fields
        assert codes or _is_empty(api, fields), fields
    assert _ends(secured) == before


HARMLESS = {
    ApiKey.FIND_COORDINATOR: {ErrorCode.INVALID_REQUEST},
    ApiKey.PRODUCE: {ErrorCode.UNKNOWN_TOPIC_ID},
    ApiKey.METADATA: {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_SERVER_ERROR},
    ApiKey.DELETE_TOPICS: {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {ErrorCode.INVALID_REQUEST},
}
"""Errors that come before permissions, as in Kafka: of requests that are invalid, and of ids that nobody has."""


def _is_empty(api: ApiKey, fields: dict[str, Any]) -> bool:
    """Whether an answer without errors tells nothing about a resource."""
    if api is ApiKey.DESCRIBE_CLUSTER:
        return fields["clusterAuthorizedOperations"] in (0, -(1 << 31))
    about_cluster = {"brokers", "clusterId", "controllerId", "throttleTimeMs", "clusterAuthorizedOperations"}
    return not any(value for name, value in fields.items() if name not in about_cluster)


def _ends(broker: Secured) -> dict[str, int]:
    logs = {str(partition): broker.store.get(partition) for partition in broker.store.partitions()}
    return {partition: log.end_offset for partition, log in logs.items() if log is not None}
