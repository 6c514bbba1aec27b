"""Settings of a node: options of the command line and Kafka's broker configurations."""

from pathlib import Path
from typing import Literal

import msgspec

from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ConfigError
from kohort.model.numbers import is_port
from kohort.security.protocols import SecurityProtocol


class Passwords(dict[str, str]):
    """Passwords by user; `repr()` shows none."""

    def __repr__(self) -> str:
        return f"Passwords({list(self)})"


class Secret(str):
    """A text that `repr()` does not show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret()"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """
    Attributes:
        port: 0 takes a free port.
        brokers: how many brokers the process presents. Their ids and ports follow those of the first one. With `store` it is
            one: other processes are the other brokers.
        racks: of the brokers; empty if all have `broker.rack`.
        advertised: host and port that clients are told; None for the address of the listener.
        metrics_port: port of the metrics listener on the same host; 0 takes a free port, None serves no metrics.
        metrics_token: what scrapers of other machines show; without one they are refused. `repr()` shows it not.
        data_dir: None keeps everything in memory, or in `store`.
        store: address of the database with the logs; it may have a password, and `repr()` shows it not.
        flush: "commit": records are flushed before they are acknowledged; "os": the operating system writes them back when
            it decides to, which is Kafka's default.
        allow_anonymous: whether a listener that is not on loopback may serve clients without authentication.
        protocol: security protocol of the listener at host and port; `listeners` replaces it.
        made_certificates: directory with certificates that were made for this run; None without them.
        users: names and passwords from the options; they exist for PLAIN and SCRAM.
        config: broker configurations, and the release of Apache Kafka that the brokers are like (`BrokerConfig.release`).
        makes_internal_topics: the internal topics of coordinators are created at the start, and not by the first client that
            looks for a coordinator, which then waits for a second.
        virtual_time: whether the clock stands still until a test lets it go on (`kohort.server.virtual_time`).
        virtual_from_ms: where virtual time begins, in milliseconds since 1970; None for the wall clock.
        features: finalised levels of features by name; the newest level of every other feature.
    """

    host: str = "127.0.0.1"
    port: int = 9092
    brokers: int = 1
    racks: tuple[str, ...] = ()
    advertised: tuple[str, int] | None = None
    metrics_port: int | None = None
    metrics_token: Secret | None = None
    data_dir: Path | None = None
    store: Secret | None = None
    flush: Literal["commit", "os"] = "commit"
    allow_anonymous: bool = False
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    made_certificates: Path | None = None
    users: Passwords = Passwords()
    config: BrokerConfig
    makes_internal_topics: bool = False
    features: dict[str, int] = {}
    virtual_time: bool = False
    virtual_from_ms: int | None = None


def parse_host_port(text: str, what: str) -> tuple[str, int]:
    """
    Parse `HOST:PORT` or `[IPV6]:PORT`.

    Args:
        what: the option, for the error message.

    Raises:
        ConfigError: the text has another form.
    """
    host, separator, port = text.rpartition(":")
    if not separator or not host or not is_port(port):
        raise ConfigError(
            f"{what} must be HOST:PORT with a port from 1 to 65535, for example localhost:9092; it is {text!r}"
        )
    return host.removeprefix("[").removesuffix("]"), int(port)
