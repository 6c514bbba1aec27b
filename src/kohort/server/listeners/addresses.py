"""
Addresses of listeners: Kafka's `listeners`, `advertised.listeners` and `listener.security.protocol.map`, or one listener from
the options `--host`, `--port` and `--advertised`.

Every broker of the process has all listeners. The first broker has the ports as given, the next ones the ports behind them.

Source: KIP-103, KIP-797; Kafka SocketServerConfigs.listenerListToEndPoints, KafkaConfig.effectiveAdvertisedBrokerListeners.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from kohort.broker.configs.definitions import BROKER_KEYS, BrokerConfig
from kohort.broker.configs.listener_configs import LISTENERS, PROTOCOLS, parse_listeners, protocol_map
from kohort.model.errors import ConfigError
from kohort.security.protocols import SecurityProtocol

_log: Final = logging.getLogger("kohort.server")

PORTS: Final = 65_536
_ADVERTISED: Final = "advertised.listeners"
_CONTROLLERS: Final = "controller.listener.names"
_DELAY: Final = "connection.failed.authentication.delay.ms"
_EARLY: Final = "early.start.listeners"
_CLASSES: Final = ("principal.builder.class", "ssl.engine.factory.class")
_INTER_BROKER: Final = "inter.broker.listener.name"
_ALL_ADDRESSES: Final = ("0.0.0.0", "::", "")


class ListenerAddress(msgspec.Struct, frozen=True):
    """
    Attributes:
        host: "" for all addresses of both IP versions.
        port: of the first broker; 0 takes a free port.
        advertised: host and port that clients are told, port 0 for that of the listener; None for the address of the listener.
        is_advertised: whether clients are told of the listener.
        protocol: what a connection does before its first request.
    """

    name: str
    host: str
    port: int
    advertised: tuple[str, int] | None = None
    is_advertised: bool = True
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    def of_broker(self, number: int) -> ListenerAddress:
        """The address of the same listener at another broker; brokers are numbered from 0."""
        advertised = self.advertised
        return msgspec.structs.replace(
            self,
            port=self.port + number if self.port else 0,
            advertised=(advertised[0], advertised[1] + number) if advertised and advertised[1] else advertised,
        )


def listener_addresses(
    config: BrokerConfig,
    host: str,
    port: int,
    advertised: tuple[str, int] | None,
    brokers: int,
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
) -> list[ListenerAddress]:
    """
    The listeners of the first broker; those of `listeners` if it is set.

    Args:
        protocol: of the listener from the options. The listener has its name.

    Raises:
        ConfigError: an address is not valid, has no security protocol, or two brokers had the same port.
    """
    if LISTENERS in config.explicit:
        return configured_addresses(config, brokers)
    if _ADVERTISED in config.explicit:
        raise ConfigError("advertised.listeners is set without listeners; set both, or use --advertised HOST:PORT")
    found = [ListenerAddress(protocol.name, host, port, advertised, protocol=protocol)]
    _check(config, found, brokers)
    return found


def addresses_of_brokers(
    configs: Mapping[int, BrokerConfig],
    host: str,
    port: int,
    advertised: tuple[str, int] | None,
    protocol: SecurityProtocol,
) -> dict[int, list[ListenerAddress]]:
    """
    The listeners of each broker: those of its own `listeners` if that was set at run time, else those of the start.

    Raises:
        ConfigError: as `listener_addresses`, for values of the start. Others are set aside with an entry in the log.
    """
    started = next(iter(configs.values())).with_dynamic({}, {})
    first = listener_addresses(started, host, port, advertised, len(configs), protocol)
    found: dict[int, list[ListenerAddress]] = {}
    for number, (node_id, config) in enumerate(configs.items()):
        found[node_id] = [address.of_broker(number) for address in first]
        if LISTENERS in config.dynamic:
            try:
                found[node_id] = configured_addresses(config)
            except ConfigError as error:
                _log.error("listeners.set_aside broker=%d error=%r", node_id, str(error))
    return found


def configured_addresses(config: BrokerConfig, brokers: int = 1) -> list[ListenerAddress]:
    """The listeners of `listeners`. Raises: ConfigError: as `listener_addresses`."""
    found = _configured(config)
    _check(config, found, brokers)
    return found


def _check(config: BrokerConfig, addresses: Sequence[ListenerAddress], brokers: int) -> None:
    _check_ports(addresses, brokers)
    _check_names(config, addresses)


def _configured(config: BrokerConfig) -> list[ListenerAddress]:
    controllers = config.get_list(_CONTROLLERS)
    own = [(name, host, port) for name, host, port in parse_listeners(config) if name not in controllers]
    if not own:
        raise ConfigError(
            "listeners names no listener for clients; give at least one, such as PLAINTEXT://localhost:9092"
        )
    protocols = protocol_map(config.get_str(PROTOCOLS) or "")
    for name, _, _ in own:
        if name not in protocols:
            raise ConfigError(
                f"No security protocol defined for listener {name}: add {name}:PLAINTEXT to {PROTOCOLS}, or another protocol"
            )
    if _ADVERTISED not in config.explicit:
        return [ListenerAddress(name, host, port, protocol=protocols[name]) for name, host, port in own]
    told = {name: (host, port) for name, host, port in parse_listeners(config, _ADVERTISED) if name not in controllers}
    unknown = sorted(told.keys() - {name for name, _, _ in own})
    if unknown:
        raise ConfigError(f"advertised.listeners has {unknown[0]}, which listeners does not have; add it to listeners")
    for name, (host, _) in told.items():
        if host in _ALL_ADDRESSES:
            raise ConfigError(
                f"advertised.listeners has no address that clients can reach for {name}; give a host name"
            )
    return [
        ListenerAddress(name, host, port, told.get(name), name in told, protocols[name]) for name, host, port in own
    ]


def _check_names(config: BrokerConfig, addresses: Sequence[ListenerAddress]) -> None:
    """
    Check configurations that name listeners, and times that depend on each other.

    Raises:
        ConfigError: a name is not that of a listener, the delay of a failed authentication exceeds the idle time, or a Java
            class would decide about clients.

    Source: Kafka KafkaConfig.validateValues, getInterBrokerListenerNameAndSecurityProtocol.
    """
    told = [address.name for address in addresses if address.is_advertised]
    if _INTER_BROKER in config.explicit:
        if "security.inter.broker.protocol" in config.explicit:
            raise ConfigError(f"Only one of {_INTER_BROKER} and security.inter.broker.protocol should be set.")
        if (config.get_str(_INTER_BROKER) or "").upper() not in told:
            raise ConfigError(
                f"{_INTER_BROKER} must be a listener name defined in advertised.listeners. The valid options based on "
                f"currently configured listeners are {','.join(told)}"
            )
    early = config.get_list(_EARLY) if _EARLY in config.explicit else ()
    for name in early:
        if name.upper() not in {address.name for address in addresses} | {*config.get_list(_CONTROLLERS)}:
            raise ConfigError(
                f"{_EARLY} contains listener {name}, which is not contained in listeners or {_CONTROLLERS}"
            )
    for key in _CLASSES:
        if config.explicit.get(key) not in (None, "", BROKER_KEYS[key].default):
            raise ConfigError(
                f"{key}: Java classes cannot be loaded, and the broker would not be as safe as with it; leave it out"
            )
    idle_ms = config.get_int("connections.max.idle.ms")
    if _DELAY in config.explicit and 0 <= idle_ms <= (delay_ms := config.get_int(_DELAY)):
        raise ConfigError(
            f"{_DELAY}={delay_ms} should always be less than connections.max.idle.ms={idle_ms} to prevent failed "
            "authentication responses from timing out"
        )


def _check_ports(addresses: Sequence[ListenerAddress], brokers: int) -> None:
    taken: dict[int, ListenerAddress] = {}
    for number in range(brokers):
        for address in addresses:
            port = address.of_broker(number).port
            if not port:
                continue
            if port >= PORTS:
                raise ConfigError(
                    f"{brokers} brokers from port {address.port} on need ports above 65535; use a lower port"
                )
            other = taken.setdefault(port, address)
            if other is not address and {_ip_version(other.host), _ip_version(address.host)} != {4, 6}:
                raise ConfigError(
                    f"port {port} is needed twice, by {other.name} and by {address.name}: each of the {brokers} brokers "
                    "takes the next port of every listener; choose ports further apart"
                )


def _ip_version(host: str) -> int:
    """4 or 6 for an address, 0 for a name. One port may have a listener of each version."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0
