"""
Addresses of listeners: Kafka's `listeners`, `advertised.listeners` and `listener.security.protocol.map`, or one listener from
the options `--host`, `--port` and `--advertised`.

Every broker of the process has all listeners. The first broker has the ports as given, the next ones the ports behind them.

Source: KIP-103, KIP-797; Kafka SocketServerConfigs.listenerListToEndPoints, KafkaConfig.effectiveAdvertisedBrokerListeners.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from kohort.broker.cluster import DEFAULT_LISTENER
from kohort.broker.configs.definitions import BrokerConfig
from kohort.model.errors import ConfigError
from kohort.model.numbers import is_number

PORTS: Final = 65_536
_URI: Final = re.compile(r"([a-zA-Z0-9_-]+)://(?:\[([0-9a-fA-F:%.]*)\]|([^\[\]:/]*)):(\d+)")
_PLAINTEXT: Final = "PLAINTEXT"
_ALL_ADDRESSES: Final = ("0.0.0.0", "::", "")


class ListenerAddress(msgspec.Struct, frozen=True):
    """
    Attributes:
        host: "" for all addresses of both IP versions.
        port: of the first broker; 0 takes a free port.
        advertised: host and port that clients are told, port 0 for that of the listener; None for the address of the listener.
        is_advertised: whether clients are told of the listener.
    """

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    is_advertised: bool = True

    def of_broker(self, number: int) -> ListenerAddress:
        """The address of the same listener at another broker; brokers are numbered from 0."""
        advertised = self.advertised
        return msgspec.structs.replace(
            self,
            port=self.port + number if self.port else 0,
            advertised=(advertised[0], advertised[1] + number) if advertised and advertised[1] else advertised,
        )


def listener_addresses(
    config: BrokerConfig, host: str, port: int, advertised: tuple[str, int] | None, brokers: int
) -> list[ListenerAddress]:
    """
    The listeners of the first broker; those of `listeners` if it is set.

    Raises:
        ConfigError: an address is not valid, has another security protocol than PLAINTEXT, or two brokers had the same port.
    """
    if "listeners" not in config.explicit:
        if "advertised.listeners" in config.explicit:
            raise ConfigError("advertised.listeners is set without listeners; set both, or use --advertised HOST:PORT")
        found = [ListenerAddress(DEFAULT_LISTENER, host, port, advertised)]
    else:
        found = _configured(config)
    _check_ports(found, brokers)
    return found


def _configured(config: BrokerConfig) -> list[ListenerAddress]:
    controllers = config.get_list("controller.listener.names") if "controller.listener.names" in config.explicit else ()
    own = [(name, host, port) for name, host, port in _parse(config, "listeners") if name not in controllers]
    if not own:
        raise ConfigError(
            "listeners names no listener for clients; give at least one, such as PLAINTEXT://localhost:9092"
        )
    for name, _, _ in own:
        _check_protocol(config, name)
    if "advertised.listeners" not in config.explicit:
        return [ListenerAddress(name, host, port) for name, host, port in own]
    told = {
        name: (host, port) for name, host, port in _parse(config, "advertised.listeners") if name not in controllers
    }
    unknown = sorted(told.keys() - {name for name, _, _ in own})
    if unknown:
        raise ConfigError(f"advertised.listeners has {unknown[0]}, which listeners does not have; add it to listeners")
    for name, (host, _) in told.items():
        if host in _ALL_ADDRESSES:
            raise ConfigError(
                f"advertised.listeners has no address that clients can reach for {name}; give a host name"
            )
    return [ListenerAddress(name, host, port, told.get(name), name in told) for name, host, port in own]


def _parse(config: BrokerConfig, key: str) -> list[tuple[str, str, int]]:
    found: dict[str, tuple[str, str, int]] = {}
    for text in config.get_list(key):
        matched = _URI.fullmatch(text)
        if matched is None or not is_number(matched[4], 0, PORTS - 1):
            raise ConfigError(f"{key} has {text!r}; write NAME://HOST:PORT, for example PLAINTEXT://localhost:9092")
        name = matched[1].upper()
        if name in found:
            raise ConfigError(f"{key} has two addresses of {name}; give each listener a name of its own")
        found[name] = name, matched[2] or matched[3] or "", int(matched[4])
    return list(found.values())


def _check_protocol(config: BrokerConfig, name: str) -> None:
    """
    Raises:
        ConfigError: the security protocol of a listener is unknown, or not served.
    """
    text = config.get_str("listener.security.protocol.map") or ""
    protocols = {key.strip().upper(): value.strip().upper() for key, _, value in _pairs(text)}
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"listeners has {name}, which has no security protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
        )
    if protocol != _PLAINTEXT:
        raise ConfigError(f"listeners has {name} with {protocol}; Kohort serves {_PLAINTEXT} only")


def _pairs(text: str) -> list[tuple[str, str, str]]:
    return [pair.partition(":") for pair in text.split(",") if pair]


def _check_ports(addresses: Sequence[ListenerAddress], brokers: int) -> None:
    taken: dict[int, str] = {}
    for number in range(brokers):
        for address in addresses:
            port = address.of_broker(number).port
            if not port:
                continue
            if port >= PORTS:
                raise ConfigError(
                    f"{brokers} brokers from port {address.port} on need ports above 65535; use a lower port"
                )
            if port in taken:
                raise ConfigError(
                    f"port {port} is needed twice, by {taken[port]} and by {address.name}: each of the {brokers} brokers "
                    "takes the next port of every listener; choose ports further apart"
                )
            taken[port] = address.name
