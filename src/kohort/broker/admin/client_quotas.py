"""
DescribeClientQuotas (48) and AlterClientQuotas (49), versions 0 and 1, of the quotas in the catalog.

Source: KIP-546, KIP-612; Kafka ClientQuotasImage.describe, ClientQuotaControlManager, AlterClientQuotasRequest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from operator import itemgetter
from typing import Any, Final

from kohort.broker.catalog.catalog import NO_CHANGE, Catalog
from kohort.broker.catalog.changes import DEFAULT_TIMEOUT_MS, Changes, Decided, accepted, verdict
from kohort.broker.catalog.view import CatalogChange, Setting
from kohort.broker.ports import Context
from kohort.broker.quotas.limits import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    ENTITY_TYPES,
    IP,
    PRODUCER_BYTE_RATE,
    QUOTAS,
    REQUEST_PERCENTAGE,
    USER,
    Entity,
    entity_name,
    parse_entity,
    quota_setting,
    quota_values,
)
from kohort.machine.gradual import HANDLER_STEP, chunks
from kohort.machine.shard import Reply
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.limits import QUOTA_NAME_LENGTH_MAX, SETTINGS_MAX
from kohort.wire import messages as m

_EXACT, _DEFAULT, _ANY = range(3)
_CLIENT_KEYS: Final = {
    PRODUCER_BYTE_RATE: ("a LONG", (1 << 63) - 1),
    CONSUMER_BYTE_RATE: ("a LONG", (1 << 63) - 1),
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
"""The keys of users and client ids. An integral key has the name of its type, with its article, and the largest value."""
_IP_KEYS: Final = {CONNECTION_CREATION_RATE: ("an INT", (1 << 31) - 1)}
_EPSILON: Final = 1e-6
_EMPTY: Final = "Invalid empty client quota entity"
_COMBINED: Final = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
"""Kafka's words."""


class ClientQuotaApis:
    """Handlers of both APIs."""

    def __init__(self, catalog: Catalog, changes: Changes) -> None:
        self._catalog = catalog
        self._changes = changes

    def describe_client_quotas(
        self, request: m.DescribeClientQuotasRequest, _context: Context, _reply: Reply[m.DescribeClientQuotasResponse]
    ) -> Generator[None, None, m.DescribeClientQuotasResponse]:
        try:
            exact, specified = _check(request)
        except CoordinatorError as error:
            return m.DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
        entries = []
        for number, (name, quotas) in enumerate(list(self._catalog.settings(QUOTAS).items()), 1):
            entity = parse_entity(name)
            if _matches(entity, exact, specified, is_strict=request.strict):
                entries.append(_described(entity, quota_values(quotas)))
            if number % HANDLER_STEP == 0:
                yield
        return m.DescribeClientQuotasResponse(error_message="", entries=entries)

    def alter_client_quotas(
        self, request: m.AlterClientQuotasRequest, _context: Context, reply: Reply[m.AlterClientQuotasResponse]
    ) -> Generator[None, None, m.AlterClientQuotasResponse | None]:
        """Change the quotas of each entity as a whole or not at all; some entities at a time."""
        seen: set[str] = set()

        def decide(part: Sequence[Any]) -> tuple[CatalogChange, Callable[[ErrorCode], list[Any]]]:
            decided = self._decide(part, seen)
            known = self._catalog.newest_settings(QUOTAS)
            changed = tuple(each for each in accepted(decided, Setting) if each.value != known.get(each.name))
            return NO_CHANGE if request.validate_only else CatalogChange(settings=changed), partial(_altered, decided)

        def response(results: list[Any]) -> m.AlterClientQuotasResponse:
            return m.AlterClientQuotasResponse(entries=results)

        parts = list(chunks(request.entries))
        return (yield from self._changes.make_in_parts(parts, decide, DEFAULT_TIMEOUT_MS, response, reply))

    def _decide(self, entries: Any, seen: set[str]) -> Decided[Entity, Setting]:
        """The new quotas of each entity, or why they are refused. An entity that is given again is refused as a whole."""
        decided: dict[str, tuple[Entity, Setting | CoordinatorError]] = {}
        added = 0
        for entry in entries:
            entity = {each.entity_type: each.entity_name for each in entry.entity}
            name = repr(sorted(entity.items(), key=itemgetter(0)))
            try:
                if name in seen:
                    raise _duplicate(entity)
                seen.add(name)
                setting = self._altered_setting(entity, entry.ops)
                if setting.value is not None and setting.name not in self._catalog.newest_settings(QUOTAS):
                    added += 1
                    _check_names(entity)
                    if len(self._catalog.newest_settings(QUOTAS)) + added > SETTINGS_MAX:
                        raise CoordinatorError(
                            ErrorCode.POLICY_VIOLATION, f"At most {SETTINGS_MAX} entities can have quotas."
                        )
                decided[name] = entity, setting
            except CoordinatorError as error:
                decided[name] = entity, error.with_traceback(None)
        return list(decided.values())

    def _altered_setting(self, entity: Entity, ops: Any) -> Setting:
        changes: dict[str, float | None] = {}
        for op in ops:
            if op.key in changes:
                raise _duplicate(entity)
            changes[op.key] = None if op.remove else op.value
        keys = _keys_of(entity)
        quotas = quota_values(self._catalog.newest_settings(QUOTAS).get(entity_name(entity), {}))
        for key, value in changes.items():
            if value is None:
                quotas.pop(key, None)
            else:
                _check_value(keys, key, value)
                quotas[key] = value
        return quota_setting(entity, quotas)


def _duplicate(entity: Entity) -> CoordinatorError:
    """The refusal of an entity that is given twice, or with a key given twice."""
    names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items())
    message = f"Ignoring duplicate entity ClientQuotaEntity(entries={{{names}}})"
    return CoordinatorError(ErrorCode.INVALID_REQUEST, message)


def _check_names(entity: Entity) -> None:
    """Bound what a new entity keeps in memory. Raises CoordinatorError: INVALID_REQUEST."""
    for kind, name in entity.items():
        if name is not None and len(name) > QUOTA_NAME_LENGTH_MAX:
            message = f"The name of a {kind} has at most {QUOTA_NAME_LENGTH_MAX} characters."
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, message)


def _keys_of(entity: Entity) -> Mapping[str, tuple[str, int] | None]:
    """
    The keys that an entity may have.

    Raises:
        CoordinatorError: INVALID_REQUEST: there is no such entity.
    """
    if not entity:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, _EMPTY)
    for kind, name in entity.items():
        if kind not in ENTITY_TYPES:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Empty {kind} not supported")
    if IP not in entity:
        return _CLIENT_KEYS
    if USER in entity or CLIENT_ID in entity:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, _COMBINED)
    if not _is_address(entity[IP]):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{entity[IP]} is not a valid IP or resolvable host.")
    return _IP_KEYS


def _is_address(name: str | None) -> bool:
    """
    Whether a name is an address. Kafka also takes a host name and looks it up, which would hold the event loop up; `localhost`
    is the only one that Kohort knows.
    """
    if name is None or name == "localhost":
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return "%" not in name


def _check_value(keys: Mapping[str, tuple[str, int] | None], key: str, value: float) -> None:
    """
    Raises:
        CoordinatorError: INVALID_REQUEST.
    """
    if key not in keys:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Invalid configuration key {key}")
    if not math.isfinite(value):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be a finite number")
    if value <= 0:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Quota {key} must be greater than 0")
    integral = keys[key]
    if integral is None:
        return
    name, largest = integral
    if value > float(largest):
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"Proposed value for {key} is too large for {name}.")
    if abs(value % 1.0) > _EPSILON:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, f"{key} cannot be a fractional value.")


def check_quota(name: str, key: str, value: object) -> None:
    """
    Check one stored quota of the entity with a name.

    Raises:
        ConfigError: the entity or the value has another form.
        CoordinatorError: the entity cannot have this quota.
    """
    try:
        entity = parse_entity(name)
        _check_texts(entity.items())
        (number,) = quota_values({key: value}).values()  # type: ignore[dict-item]
    except (ValueError, TypeError, OverflowError):
        raise ConfigError(f"Quota {key} of {name} cannot be {repr(value)[:100]}") from None
    # Earlier versions stored infinity and NaN, which limit nothing.
    limits_nothing = number == math.inf or math.isnan(number)
    _check_value(_keys_of(entity), key, 1.0 if limits_nothing else number)


def _check_texts(items: Iterable[tuple[object, object]]) -> None:
    if not all(isinstance(kind, str) and isinstance(name, str | None) for kind, name in items):
        raise TypeError("an entity has types and names")


def _altered(decided: Decided[Entity, Setting], failure: ErrorCode) -> list[m.AlterClientQuotasResponseEntryData]:
    results = []
    for entity, outcome in decided:
        code, message = verdict(outcome, failure)
        named = [m.AlterClientQuotasResponseEntityData(entity_type=kind, entity_name=entity[kind]) for kind in entity]
        results.append(m.AlterClientQuotasResponseEntryData(error_code=code, error_message=message, entity=named))
    return results


def _described(entity: Entity, quotas: Mapping[str, float]) -> m.DescribeClientQuotasResponseEntryData:
    return m.DescribeClientQuotasResponseEntryData(
        entity=[
            m.DescribeClientQuotasResponseEntityData(entity_type=kind, entity_name=name)
            for kind, name in entity.items()
        ],
        values=[m.DescribeClientQuotasResponseValueData(key=key, value=value) for key, value in quotas.items()],
    )


def _matches(entity: Entity, exact: Entity, specified: set[str], *, is_strict: bool) -> bool:
    if is_strict and len(entity) != len(exact) + len(specified):
        return False
    return all(kind in entity and entity[kind] == name for kind, name in exact.items()) and specified <= entity.keys()


def _check(request: m.DescribeClientQuotasRequest) -> tuple[Entity, set[str]]:
    """
    The names that entities have to have by type, and the types whose names do not matter.

    Raises:
        CoordinatorError: INVALID_REQUEST or UNSUPPORTED_VERSION, with Kafka's message.
    """
    exact: dict[str, str | None] = {}
    specified: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            raise CoordinatorError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in exact or kind in specified:
            raise CoordinatorError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in ENTITY_TYPES:
            raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _check_match(component.match_type, component.match)
        if component.match_type == _ANY:
            specified.add(kind)
        else:
            exact[kind] = component.match
    if (IP in exact or IP in specified) and len(exact) + len(specified) > 1:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        )
    return exact, specified


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
