"""Addresses of brokers, as people write them."""

from typing import NamedTuple

from kohort.model.errors import ConfigError

PORT = 9092
BOOTSTRAP = f"127.0.0.1:{PORT}"


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """
    `host:port` with commas between; the port may be left out, an IPv6 host stands in brackets.

    Raises:
        ConfigError: something else.
    """
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError(f"name a broker to ask, for example: --bootstrap {BOOTSTRAP}")
    return addresses


def _parse(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16
    if not host or not is_port or (":" in host and not text.startswith("[")):
        raise ConfigError(f"{text!r} is no address of a broker; write host:port, for example {BOOTSTRAP}")
    return Address(host, int(port))
