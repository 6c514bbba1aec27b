"""What a node is started with."""

from pathlib import Path
from typing import Literal

import msgspec

from kohort.broker.configs import BrokerConfig
from kohort.model.errors import ConfigError


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        port: 0 takes a free one.
        advertised: what clients are told to connect to; None for where the node listens.
        data_dir: None keeps everything in memory.
        flush: "commit": acknowledged means flushed; "os": the operating system writes when it likes, as Kafka has it.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    advertised: tuple[str, int] | None = None
    data_dir: Path | None = None
    flush: Literal["commit", "os"] = "commit"
    config: BrokerConfig


def parse_host_port(text: str, what: str) -> tuple[str, int]:
    """
    `HOST:PORT`, `[V6]:PORT` too.

    Raises:
        ConfigError: the text is neither.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(
            f"{what} must be HOST:PORT with a port from 1 to 65535, for example localhost:9092; it is {text!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
