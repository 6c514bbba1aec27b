"""The authorizer of the broker: decisions over the durable ACLs, the audit log, and counts of refusals."""

import logging
from collections import Counter
from copy import copy
from typing import Final

from kohort.broker.acls.stored_acls import StoredAcls
from kohort.broker.catalog.catalog import Catalog
from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.loggers import AUDIT_LOG, TRACE
from kohort.model.errors import ConfigError
from kohort.model.limits import ACL_DECISION_LENGTH_MAX, ACL_DECISIONS_KEPT, AUDIT_TEXT_LENGTH_MAX, REFUSED_USERS_MAX
from kohort.model.principals import Principal
from kohort.security.acls.decisions import Decisions, parse_super_users
from kohort.security.operations import Operation, ResourceType
from kohort.wire.apis import ApiKey

CLASS_NAME: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
"""The only authorizer, by the name that `authorizer.class.name` has in Kafka."""
OTHERS: Final = "others"
"""The user of refusals for which there are no counts of their own."""

_audit: Final = logging.getLogger(AUDIT_LOG)
_log: Final = logging.getLogger("kohort.broker")
_TYPE_NAMES: Final = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "TransactionalId",
    ResourceType.DELEGATION_TOKEN: "DelegationToken",
    ResourceType.USER: "User",
}


class AclAuthorizer:
    """
    Decides by the ACLs of the catalog. Implements `kohort.security.authorization.Authorizer`.

    A change of ACLs has an effect on the next request. Allowed decisions are kept until the next change; refusals are not, so
    that each is logged and counted.

    Attributes:
        acls: what it decides by.
        refusals: by user and API, how often something was refused.
    """

    def __init__(self, acls: StoredAcls, super_users: frozenset[str], *, allows_without_acls: bool) -> None:
        self.acls = acls
        self.refusals: Counter[tuple[str, str]] = Counter()
        self._decisions = Decisions(acls.index, super_users, allows_without_acls=allows_without_acls)
        self._allowed: set[tuple[object, ...]] = set()
        self._any: dict[tuple[object, ...], bool] = {}
        self._api = ""
        acls.watch(self._forget)

    def for_api(self, api: ApiKey, /) -> "AclAuthorizer":
        """The same authorizer for the requests of one API."""
        view = copy(self)
        view._api = api.api_name
        return view

    @property
    def version(self) -> int:
        return self.acls.version

    @property
    def logs_permissions(self) -> bool:
        return _audit.isEnabledFor(logging.DEBUG)

    def may(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        /,
        *,
        logs_refusal: bool = True,
        logs_permission: bool = True,
        count: int = 1,
    ) -> bool:
        # A number, because members of an enumeration are hashed in Python.
        asked = (operation << 8 | resource_type, name, principal, host)
        if asked in self._allowed and not self.logs_permissions:
            return True
        is_allowed = self._decisions.may(str(principal), host, operation, resource_type, name)
        if is_allowed and len(principal.name) + len(name) <= ACL_DECISION_LENGTH_MAX:
            if len(self._allowed) >= ACL_DECISIONS_KEPT:
                self._allowed.clear()
            self._allowed.add(asked)
        if logs_refusal and not is_allowed:
            self._count(principal)
        level = logging.DEBUG if is_allowed else logging.INFO
        if not (logs_permission if is_allowed else logs_refusal):
            level = TRACE
        if _audit.isEnabledFor(level):
            rule = self._decisions.rule(str(principal), host, operation, resource_type, name)
            resource = f"{_TYPE_NAMES[resource_type]}:LITERAL:{name}"
            self._write(level, principal, host, operation, resource, count, rule, is_allowed)
        return is_allowed

    def may_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, /
    ) -> bool:
        asked = (principal, host, operation, resource_type)
        is_allowed = self._any.get(asked)
        if is_allowed is None:
            is_allowed = self._decisions.may_for_any(str(principal), host, operation, resource_type)
            if len(self._any) >= ACL_DECISIONS_KEPT:
                self._any.clear()
            if len(principal.name) <= ACL_DECISION_LENGTH_MAX:
                self._any[asked] = is_allowed
        level = logging.DEBUG if is_allowed else logging.INFO
        if not is_allowed:
            self._count(principal)
        if _audit.isEnabledFor(level):
            resource = f"any {_TYPE_NAMES[resource_type]}"
            self._write(level, principal, host, operation, resource, 1, "AuthorizeByResourceType", is_allowed)
        return is_allowed

    def _forget(self) -> None:
        self._allowed.clear()
        self._any.clear()

    def _count(self, principal: Principal) -> None:
        key = (_cut(str(principal)), self._api)
        if key not in self.refusals and len(self.refusals) >= REFUSED_USERS_MAX:
            key = (OTHERS, self._api)
        self.refusals[key] += 1

    def _write(
        self,
        level: int,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: str,
        count: int,
        rule: str,
        is_allowed: bool,
    ) -> None:
        """Write a line of the audit log. Lines of one user, address and kind are limited, as those of a client are."""
        _audit.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s for request = %s with resourceRefCount = %s "
            "based on rule %s",
            _cut(str(principal)),
            "Allowed" if is_allowed else "Denied",
            operation.name,
            host,
            _cut(resource),
            self._api,
            count,
            _cut(rule),
            extra={"client": f"{_cut(str(principal))} {host} {is_allowed}", "is_text": True},
        )


def _cut(text: str) -> str:
    return text if len(text) <= AUDIT_TEXT_LENGTH_MAX else f"{text[:AUDIT_TEXT_LENGTH_MAX]}..."


def authorizer_of(config: BrokerConfig, catalog: Catalog) -> AclAuthorizer | None:
    """
    The authorizer that the configurations ask for; None if everyone may do everything.

    Raises:
        ConfigError: there is no such authorizer, or a super user cannot be read.
    """
    class_name = (config.get_str("authorizer.class.name") or "").strip()
    if not class_name:
        return None
    if class_name != CLASS_NAME:
        raise ConfigError(
            f"authorizer.class.name: there is no authorizer {class_name}; set {CLASS_NAME}, or nothing to allow everything"
        )
    super_users = parse_super_users(config.others.get("super.users", ""))
    allows = config.others.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
    acls = StoredAcls(catalog)
    if not super_users and not acls.index and not allows:
        _log.warning(
            "authorizer.nobody hint=%r", "there is no access rule, and super.users names nobody who could make one"
        )
    return AclAuthorizer(acls, super_users, allows_without_acls=allows)
