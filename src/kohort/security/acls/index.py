"""
All ACLs, found by what a decision asks for.

Each type of resource has its patterns by name, each pattern its principals, each principal the hosts of its ACLs, and each host
the operations as bits. A decision looks at the literal name, at `*`, and at the beginnings of the name in the lengths that
prefixes have; then at the principal and at `User:*`; then at the host, at `*`, and at ranges in the lengths that they have. So
its cost depends on the number of different lengths, and not on the number of ACLs.
"""

from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final

from kohort.security.acls.acl import ANY_HOST, ANY_NAME, ANY_USER, Acl, PatternType, Permission
from kohort.security.acls.hosts import Address, AddressRange, address_of, parse_range
from kohort.security.operations import Operation, ResourceType

ALLOW_SHIFT: Final = 16
"""The bit of an operation is 1 << its code if it is denied, and further left by this if it is allowed."""
LITERAL: Final = PatternType.LITERAL
PREFIXED: Final = PatternType.PREFIXED


def bit_of(operation: int, permission: int) -> int:
    """The bit of an ACL among those of its pattern, principal and host."""
    return 1 << (operation + ALLOW_SHIFT if permission == Permission.ALLOW else operation)


_PERMITTED: Final = {
    bit_of(operation, permission): (operation, permission) for operation in Operation for permission in Permission
}


class RangeHosts:
    """The texts that name one range of addresses, such as 10.0.0.0/8 and 10.1.1.1/8, and the bits of all."""

    __slots__ = ("_counts", "bits", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.bits = 0
        self._counts: dict[int, int] = {}
        """By bit: how many texts have it."""

    def add(self, text: str, bit: int) -> None:
        self.texts[text] = self.texts.get(text, 0) | bit
        self._counts[bit] = self._counts.get(bit, 0) + 1
        self.bits |= bit

    def remove(self, text: str, bit: int) -> None:
        left = self.texts[text] & ~bit
        if left:
            self.texts[text] = left
        else:
            del self.texts[text]
        self._counts[bit] -= 1
        if not self._counts[bit]:
            self.bits &= ~bit


class Hosts:
    """The ACLs of one pattern and principal, by host."""

    __slots__ = ("_ranges", "_texts")

    def __init__(self) -> None:
        self._texts: dict[str, int] = {}
        self._ranges: dict[tuple[int, int], dict[int, RangeHosts]] | None = None
        """By version and length; None without ranges."""

    def bits(self, host: str) -> int:
        """The bits of all ACLs whose host matches a client's."""
        found = self._texts.get(host, 0) | self._texts.get(ANY_HOST, 0)
        for within in self._ranges_around(host) if self._ranges is not None else ():
            found |= within.bits
        return found

    def texts(self, host: str) -> Iterator[str]:
        """The hosts of the ACLs that match a client's."""
        yield from (text for text in (host, ANY_HOST) if text in self._texts)
        for within in self._ranges_around(host) if self._ranges is not None else ():
            yield from within.texts

    def all_texts(self) -> list[str]:
        ranges = [] if self._ranges is None else list(self._ranges.values())
        return [*self._texts, *(text for of_length in ranges for each in of_length.values() for text in each.texts)]

    def bits_of(self, text: str) -> int:
        """The bits of the ACLs that have this text as their host; 0 for a text of none."""
        if "/" not in text:
            return self._texts.get(text, 0)
        try:
            version, length, bits = parse_range(text)
        except ValueError:
            return 0
        within = (self._ranges or {}).get((version, length), {}).get(bits)
        return 0 if within is None else within.texts.get(text, 0)

    @property
    def is_empty(self) -> bool:
        return not self._texts and self._ranges is None

    def add(self, text: str, bit: int) -> None:
        address_range = _range_of(text)
        if address_range is None:
            self._texts[text] = self._texts.get(text, 0) | bit
            return
        version, length, bits = address_range
        if self._ranges is None:
            self._ranges = {}
        self._ranges.setdefault((version, length), {}).setdefault(bits, RangeHosts()).add(text, bit)

    def remove(self, text: str, bit: int) -> None:
        address_range = _range_of(text)
        if address_range is None:
            left = self._texts[text] & ~bit
            if left:
                self._texts[text] = left
            else:
                del self._texts[text]
            return
        assert self._ranges is not None
        version, length, bits = address_range
        of_length = self._ranges[version, length]
        of_length[bits].remove(text, bit)
        if not of_length[bits].texts:
            del of_length[bits]
        if not of_length:
            del self._ranges[version, length]
        if not self._ranges:
            self._ranges = None

    def _ranges_around(self, host: str) -> Iterator[RangeHosts]:
        address: Address = address_of(host)
        for (version, length), of_length in (self._ranges or {}).items():
            if version == address.version:
                within = of_length.get(address.first(length))
                if within is not None:
                    yield within


Principals = dict[str, Hosts]


class Patterns:
    """The patterns of one type of resource, each with its principals."""

    __slots__ = ("_counts", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, Principals] = {}
        self.prefixed: dict[str, Principals] = {}
        self.lengths: list[int] = []
        """The different lengths of prefixes, ascending."""
        self._counts: dict[int, int] = {}

    def of(self, pattern: int) -> dict[str, Principals]:
        return self.literal if pattern == LITERAL else self.prefixed

    def matching(self, name: str) -> list[Principals]:
        """The principals of each pattern that matches a name."""
        found = []
        for exact in (name, ANY_NAME) if name != ANY_NAME else (name,):
            principals = self.literal.get(exact)
            if principals is not None:
                found.append(principals)
        found.extend(self.prefixes(name))
        return found

    def prefixes(self, name: str) -> Iterator[Principals]:
        """The principals of each prefix of a name."""
        for length in self.lengths:
            if length > len(name):
                break
            principals = self.prefixed.get(name[:length])
            if principals is not None:
                yield principals

    def hosts_to_add(self, pattern: int, name: str, principal: str) -> Hosts:
        by_name = self.of(pattern)
        if name not in by_name:
            by_name[name] = {}
            if pattern == PREFIXED:
                count = self._counts.get(len(name), 0)
                self._counts[len(name)] = count + 1
                if not count:
                    insort(self.lengths, len(name))
        return by_name[name].setdefault(principal, Hosts())

    def remove(self, pattern: int, name: str, principal: str) -> None:
        """Remove a principal without ACLs from a pattern, and the pattern if it was the last one."""
        by_name = self.of(pattern)
        del by_name[name][principal]
        if by_name[name]:
            return
        del by_name[name]
        if pattern == PREFIXED:
            self._counts[len(name)] -= 1
            if not self._counts[len(name)]:
                del self._counts[len(name)]
                self.lengths.remove(len(name))


class AclIndex:
    """A set of ACLs. Not thread-safe."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self._patterns = {resource_type: Patterns() for resource_type in ResourceType}
        self._of_principal: dict[tuple[int, str], dict[tuple[int, str], Hosts]] = {}
        """By type and principal: the patterns of its ACLs."""
        self._size = 0
        for acl in acls:
            self.add(acl)

    def __len__(self) -> int:
        return self._size

    def __contains__(self, acl: Acl) -> bool:
        principals = self._patterns[acl.resource_type].of(acl.pattern).get(acl.name, {})
        hosts = principals.get(acl.principal)
        return hosts is not None and bool(hosts.bits_of(acl.host) & bit_of(acl.operation, acl.permission))

    def add(self, acl: Acl) -> None:
        """
        Add an ACL; an equal one is there once.

        Raises:
            ValueError: the host has a slash and is no range.
        """
        if acl in self:
            return
        _range_of(acl.host)
        hosts = self._patterns[acl.resource_type].hosts_to_add(acl.pattern, acl.name, acl.principal)
        hosts.add(acl.host, bit_of(acl.operation, acl.permission))
        patterns = self._of_principal.setdefault((acl.resource_type, acl.principal), {})
        patterns[acl.pattern, acl.name] = hosts
        self._size += 1

    def remove(self, acl: Acl) -> None:
        """Remove an ACL; one that is not there has no effect."""
        if acl not in self:
            return
        patterns = self._of_principal[acl.resource_type, acl.principal]
        hosts = patterns[acl.pattern, acl.name]
        hosts.remove(acl.host, bit_of(acl.operation, acl.permission))
        self._size -= 1
        if hosts.is_empty:
            self._patterns[acl.resource_type].remove(acl.pattern, acl.name, acl.principal)
            del patterns[acl.pattern, acl.name]
            if not patterns:
                del self._of_principal[acl.resource_type, acl.principal]

    def patterns(self, resource_type: int) -> Patterns:
        return self._patterns[resource_type]  # type: ignore[index]

    def patterns_of(self, resource_type: int, principal: str) -> dict[tuple[int, str], Hosts]:
        """The patterns for which a principal has ACLs, by pattern type and name."""
        return self._of_principal.get((resource_type, principal), {})

    def bits(self, resource_type: int, name: str, principal: str, host: str) -> int | None:
        """The bits of all ACLs that concern a resource, a user and a host; None if no ACL of anyone concerns the resource."""
        matching = self._patterns[resource_type].matching(name)  # type: ignore[index]
        if not matching:
            return None
        found = 0
        for principals in matching:
            for each in (principal, ANY_USER):
                hosts = principals.get(each)
                if hosts is not None:
                    found |= hosts.bits(host)
        return found


def acls_of(resource_type: int, pattern: int, name: str, principal: str, host: str, bits: int) -> Iterator[Acl]:
    """The ACLs that bits stand for."""
    while bits:
        bit = bits & -bits
        bits -= bit
        operation, permission = _PERMITTED[bit]
        yield Acl(ResourceType(resource_type), PatternType(pattern), name, principal, host, operation, permission)


def _range_of(host: str) -> AddressRange | None:
    return parse_range(host) if "/" in host else None
