"""An authorizer that looks at every ACL for every decision: what the one with an index must decide, too."""

from collections.abc import Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import NamedTuple, Self

from kohort.model.principals import Principal
from kohort.security.operations import Operation, ResourceType
from kohort.wire.apis import ApiKey

_IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


class Rule(NamedTuple):
    """An ACL; its defaults are those of the recorded matrix."""

    permission: str
    operation: str
    resource: str
    name: str
    pattern: str = "LITERAL"
    principal: str = "User:alice"
    host: str = "*"

    def is_for(self, resource: ResourceType, name: str) -> bool:
        if self.resource != resource.name:
            return False
        if self.pattern == "PREFIXED":
            return name.startswith(self.name)
        return self.name in ("*", name)

    def is_of(self, principal: Principal, host: str) -> bool:
        if self.principal not in ("User:*", str(principal)):
            return False
        if "/" in self.host:
            return ip_address(host) in ip_network(self.host, strict=False)
        return self.host in ("*", host)

    def is_about(self, operation: Operation) -> bool:
        if self.operation in ("ALL", operation.name):
            return True
        return self.permission == "ALLOW" and any(self.operation == one.name for one in _IMPLIED.get(operation, ()))


class ScanningAuthorizer:
    """
    Decides by a scan.

    Attributes:
        rules: may be replaced at any time.
        asked: the decisions so far: user, operation, type and name of the resource, whether a refusal is logged.
        counts: by the name of a resource, how often the last request that named it did so.
    """

    def __init__(self, *, super_users: Sequence[str] = ("User:admin",), allows_if_none: bool = False) -> None:
        self._super_users = super_users
        self._allows_if_none = allows_if_none
        self.rules: list[Rule] = []
        self.asked: list[tuple[str, Operation, ResourceType, str, bool]] = []
        self.counts: dict[str, int] = {}
        self.logs_permissions = False

    def for_api(self, _api: ApiKey, /) -> Self:
        return self

    @property
    def version(self) -> int:
        return hash(tuple(self.rules))

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
        self.counts[name] = count
        self.asked.append((str(principal), operation, resource_type, name, logs_refusal))
        if str(principal) in self._super_users:
            return True
        of_resource = [rule for rule in self.rules if rule.is_for(resource_type, name)]
        matching = [rule for rule in of_resource if rule.is_of(principal, host) and rule.is_about(operation)]
        if any(rule.permission == "DENY" for rule in matching):
            return False
        return bool(matching) or (self._allows_if_none and not of_resource)

    def allow(self, operation: str, resource: str, name: str, **what: str) -> None:
        self.rules.append(Rule("ALLOW", operation, resource, name, **what))

    def deny(self, operation: str, resource: str, name: str, **what: str) -> None:
        self.rules.append(Rule("DENY", operation, resource, name, **what))

    def may_for_any(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, /
    ) -> bool:
        if self.may(principal, host, operation, resource_type, "hardcode"):
            return True
        own = [
            rule
            for rule in self.rules
            if rule.resource == resource_type.name
            and rule.is_of(principal, host)
            and rule.operation in ("ALL", operation.name)
        ]
        denied = [rule for rule in own if rule.permission == "DENY"]
        if any(rule.pattern == "LITERAL" and rule.name == "*" for rule in denied):
            return False
        return any(not _is_dominated(rule, denied) for rule in own if rule.permission == "ALLOW")


def _is_dominated(allowed: Rule, denied: Iterable[Rule]) -> bool:
    if allowed.pattern == "LITERAL" and allowed.name == "*":
        return False
    return any(
        (deny.pattern == "PREFIXED" and allowed.name.startswith(deny.name))
        or (deny.pattern == allowed.pattern == "LITERAL" and deny.name == allowed.name)
        for deny in denied
    )
