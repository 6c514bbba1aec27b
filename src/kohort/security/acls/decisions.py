"""Decisions over an index of ACLs. Source: Kafka StandardAuthorizerData, Authorizer.authorizeByResourceType."""

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final

from kohort.model.errors import ConfigError
from kohort.security.acls.acl import ANY_NAME, ANY_USER, Acl, PatternType, Permission
from kohort.security.acls.index import LITERAL, PREFIXED, AclIndex, Hosts, Patterns, Principals, acls_of, bit_of
from kohort.security.operations import Operation, ResourceType

_IMPLYING: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""By operation: those whose ALLOW allows it, too. A DENY denies its own operation only."""


def _bits(permission: Permission, *operations: Operation) -> int:
    return sum({bit_of(each, permission) for each in (Operation.ALL, *operations)})


_DENYING: Final = {each: _bits(Permission.DENY, each) for each in Operation}
_ALLOWING: Final = {each: _bits(Permission.ALLOW, each, *_IMPLYING.get(each, ())) for each in Operation}
_ALLOWING_ITSELF: Final = {each: _bits(Permission.ALLOW, each) for each in Operation}

_NO_COLON: Final = "(no colon is present separating the principal type from the principal name)"
_LOOKED_AT: Final = 1_000
"""ACLs that are looked at for the name of a rule. There are more only if a range of addresses is written in many ways."""
_SAMPLE: Final = "hardcode"
"""The name for which a user is asked first, as in Kafka: it stands for any name without ACLs of its own."""


class Decisions:
    """
    Decisions for principals, by the texts of their ACLs ("User:alice").

    Args:
        super_users: principals that may do everything.
        allows_without_acls: whether everyone may use a resource that no ACL concerns.
    """

    def __init__(self, index: AclIndex, super_users: Collection[str], *, allows_without_acls: bool) -> None:
        self._index = index
        self._super_users = frozenset(super_users)
        self._allows_without_acls = allows_without_acls

    def may(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a user may do this to a resource."""
        if principal in self._super_users:
            return True
        bits = self._index.bits(resource_type, name, principal, host)
        if bits is None:
            return self._allows_without_acls
        return not bits & _DENYING[operation] and bits & _ALLOWING[operation] != 0

    def may_for_any(self, principal: str, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """
        Whether a user may do this to at least one resource of the type.

        Implied operations do not count. The cost depends on the number of the user's own ACLs for the type if those that allow
        the operation are denied by others, else on the first one.
        """
        if self.may(principal, host, operation, resource_type, _SAMPLE):
            return True
        patterns = self._index.patterns(resource_type)
        asker = _Asker(patterns, principal, host, _DENYING[operation])
        if asker.is_denied(patterns.literal.get(ANY_NAME)):
            return False
        return any(
            (pattern, name) == (LITERAL, ANY_NAME) or not asker.is_dominated(pattern, name)
            for each in {principal: 0, ANY_USER: 0}
            for (pattern, name), hosts in self._with_wildcard_first(resource_type, each)
            if hosts.bits(host) & _ALLOWING_ITSELF[operation]
        )

    def rule(self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str) -> str:
        """The rule that decides, in the text of Kafka's audit log: of several ACLs, the one that Kafka names."""
        if principal in self._super_users:
            return "SuperUser"
        if not self._index.patterns(resource_type).matching(name):
            return "DefaultAllow" if self._allows_without_acls else "DefaultDeny"
        acls = sorted(islice(self._matching(principal, host, resource_type, name), _LOOKED_AT), key=_order)
        denying = next((acl for acl in acls if _bit(acl) & _DENYING[operation]), None)
        allowing = next((acl for acl in reversed(acls) if _bit(acl) & _ALLOWING[operation]), None)
        found = denying or allowing
        return "DefaultDeny" if found is None else f"MatchingAcl(acl={found})"

    def _with_wildcard_first(self, resource_type: int, principal: str) -> Iterator[tuple[tuple[int, str], Hosts]]:
        of_principal = self._index.patterns_of(resource_type, principal)
        wildcard = of_principal.get((LITERAL, ANY_NAME))
        if wildcard is not None:
            yield (LITERAL, ANY_NAME), wildcard
        yield from of_principal.items()

    def _matching(self, principal: str, host: str, resource_type: int, name: str) -> Iterator[Acl]:
        """The ACLs that concern a resource, a user and a host."""
        patterns = self._index.patterns(resource_type)
        names = [(LITERAL, each) for each in {name: 0, ANY_NAME: 0}]
        names += [(PREFIXED, name[:length]) for length in patterns.lengths if length <= len(name)]
        for pattern, each in names:
            for user in {principal: 0, ANY_USER: 0}:
                hosts = patterns.of(pattern).get(each, {}).get(user)
                if hosts is not None:
                    for text in hosts.texts(host):
                        yield from acls_of(resource_type, pattern, each, user, text, hosts.bits_of(text))


class _Asker:
    """Whether DENY ACLs for a user's operation exclude a pattern."""

    def __init__(self, patterns: Patterns, principal: str, host: str, denying: int) -> None:
        self._patterns = patterns
        self._users = (principal, ANY_USER)
        self._host = host
        self._denying = denying

    def is_denied(self, principals: Principals | None) -> bool:
        if principals is None:
            return False
        found = (principals.get(user) for user in self._users)
        return any(hosts is not None and hosts.bits(self._host) & self._denying for hosts in found)

    def is_dominated(self, pattern: int, name: str) -> bool:
        """Whether a DENY excludes all names of a pattern."""
        if pattern == LITERAL and self.is_denied(self._patterns.literal.get(name)):
            return True
        return any(self.is_denied(principals) for principals in self._patterns.prefixes(name))


def parse_super_users(text: str) -> frozenset[str]:
    """
    The principals of `super.users`, separated by semicolons.

    Raises:
        ConfigError: a principal has no type.
    """
    users = [user for part in text.split(";") if (user := part.strip())]
    for user in users:
        if ":" not in user:
            raise ConfigError(f"super.users: {no_principal(user)}")
    return frozenset(users)


def no_principal(text: str) -> str:
    """The sentence about a text without a type. Source: Kafka SecurityUtils.parseKafkaPrincipal."""
    return f"Could not parse principal from `{text}` {_NO_COLON}"


def _bit(acl: Acl) -> int:
    return bit_of(acl.operation, acl.permission)


def _order(acl: Acl) -> tuple[object, ...]:
    """The order in which Kafka looks at the ACLs that concern a resource: all others before those of all names."""
    is_wildcard = acl.pattern == PatternType.LITERAL and acl.name == ANY_NAME
    return is_wildcard, -len(acl.name), acl.pattern, acl.operation, acl.principal, acl.host, acl.permission
