"""Broker addresses: `host:port`."""

from typing import NamedTuple

from kohort.model.errors import ConfigError
from kohort.model.numbers import is_port

PORT = 9092
BOOTSTRAP = f"127.0.0.1:{PORT}"


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> list[Address]:
    """
    Parse a bootstrap list: `host:port`, separated by commas.

    The port defaults to 9092. An IPv6 host is written in brackets.

    Raises:
        ConfigError: the list is empty, or an entry is not an address.
    """
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError(f"no broker address given; for example: --bootstrap {BOOTSTRAP}")
    return addresses


def _parse(text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not is_port(port) or (":" in host and not text.startswith("[")):
        raise ConfigError(f"{text!r} is not a broker address; write host:port, for example {BOOTSTRAP}")
    return Address(host, int(port))
