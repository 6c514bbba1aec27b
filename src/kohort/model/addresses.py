"""Addresses of clients as Java writes them: in the metadata of groups, and for the hosts of access rules."""

from ipaddress import AddressValueError, IPv6Address


def java_text(host: str) -> str:
    """
    An address of a socket in Java's text: `0:0:0:0:0:0:0:1` for `::1`.

    An IPv4 address that a socket of IPv6 has accepted is an IPv4 address. Source: java.net.InetAddress.
    """
    if ":" not in host:
        return host
    bare, percent, scope = host.partition("%")
    try:
        address = IPv6Address(bare)
    except AddressValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return ":".join(f"{int(part, 16):x}" for part in address.exploded.split(":")) + percent + scope
