"""Random sets of ACLs over few names, so that literals, prefixes and wildcards meet."""

from collections.abc import Callable
from random import Random
from typing import Final

from kohort.security.acls.acl import Acl, PatternType, Permission
from kohort.security.operations import CLUSTER_NAME, Operation, ResourceType

NAMES: Final = ("a", "ab", "abc", "b", "ba", "hardcode")
"""Of topics, groups, transactional ids. Some begin with others; the last is Kafka's sample of a type."""
USERS: Final = ("alice", "bob", "carol")
ADDRESSES: Final = ("127.0.0.1", "127.0.0.2")

_PREFIXES: Final = (*NAMES, "h", "*", "c")
_PRINCIPALS: Final = (*(f"User:{user}" for user in USERS), "User:*", "User:nobody", "Group:alice", "User:ALICE")
_HOSTS: Final = (
    *ADDRESSES,
    "127.0.0.0/31",
    "127.0.0.2/32",
    "127.0.0.0/8",
    "0.0.0.0/0",
    "10.0.0.0/8",
    "::/0",
    "localhost",
)
_OPERATIONS: Final = (*Operation, Operation.ALL, Operation.DESCRIBE, Operation.READ, Operation.WRITE)
_ACLS_MAX: Final = 30
_DENIED: Final = 0.3


def random_acls(rng: Random) -> list[Acl]:
    """A set of ACLs; each once."""
    return sorted({_acl(rng) for _ in range(rng.randint(0, _ACLS_MAX))})


def _acl(rng: Random) -> Acl:
    resource_type = rng.choice((*ResourceType, ResourceType.TOPIC, ResourceType.GROUP))
    pattern = rng.choice(tuple(PatternType))
    principal = rng.choice(_PRINCIPALS if rng.random() < 0.5 else _PRINCIPALS[: len(USERS) + 1])
    host = "*" if rng.random() < 0.6 else rng.choice(_HOSTS)
    permission = Permission.DENY if rng.random() < _DENIED else Permission.ALLOW
    return Acl(
        resource_type, pattern, _name(rng, resource_type, pattern), principal, host, rng.choice(_OPERATIONS), permission
    )


def token_of(user: str) -> str:
    """The stand-in in an ACL for the id of a user's token, which each broker chooses."""
    return f"token of {user}"


def _name(rng: Random, resource_type: ResourceType, pattern: PatternType) -> str:
    if resource_type == ResourceType.CLUSTER:
        return CLUSTER_NAME
    if resource_type in _OF_USERS and rng.random() < 0.7:
        make, prefixes = _OF_USERS[resource_type]
        return rng.choice([*map(make, USERS), *(prefixes if pattern == PatternType.PREFIXED else ())])
    if pattern == PatternType.PREFIXED:
        return rng.choice(_PREFIXES)
    return "*" if rng.random() < 0.2 else rng.choice(NAMES)


_OF_USERS: Final[dict[ResourceType, tuple[Callable[[str], str], tuple[str, ...]]]] = {
    ResourceType.DELEGATION_TOKEN: (token_of, ()),
    ResourceType.USER: ("User:{}".format, ("User:", "User:a")),
}
"""Names of resources that belong to users, and prefixes of them."""
