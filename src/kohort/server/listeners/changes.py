"""
Which changes of listeners are possible while the broker runs.

Source: KIP-226; Kafka DynamicListenerConfig.validateReconfiguration, SslChannelBuilder.validateReconfiguration,
SslFactory.validateReconfiguration; texts of a 4.4.0. A change that Kafka stores without an effect is refused.
"""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import STORE_KEYS, ListenerConfig, listener_prefix
from kohort.model.errors import ConfigError
from kohort.server.listeners.addresses import ListenerAddress
from kohort.server.listeners.entrance import Entrance

if TYPE_CHECKING:
    from kohort.server.listeners.tls_stores import TlsStores

_CHANGEABLE: Final = frozenset({*STORE_KEYS, "max.connections", "max.connection.creation.rate", "num.network.threads"})
_RECONFIGURATION: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)


def check_changes(
    kept: Mapping[str, Entrance],
    advertised: Collection[str],
    addresses: Mapping[str, ListenerAddress],
    new: BrokerConfig,
) -> None:
    """
    Check the listeners that are open against those that a configuration wants.

    Args:
        kept: the open listeners.
        advertised: those that clients are told of.
        addresses: the wanted ones.

    Raises:
        ConfigError: with Kafka's message.
    """
    missing = [name for name in advertised if name not in addresses]
    if missing:
        raise ConfigError(
            "requirement failed: advertised.listeners listener names must be equal to or a subset of the ones defined in "
            f"listeners. Found {','.join(advertised)}. The valid options based on the current configuration are "
            f"{','.join(addresses)}"
        )
    for name, entrance in kept.items():
        if name not in addresses:
            continue
        if addresses[name].protocol is not entrance.config.protocol:
            raise ConfigError(
                _RECONFIGURATION.format(
                    f"Security protocol cannot be updated for existing listener ListenerName({name})"
                )
            )
        if _fixed(new, name) != _fixed(entrance.config.broker, name):
            raise ConfigError(
                _RECONFIGURATION.format(
                    f"Configs cannot be updated dynamically for existing listener ListenerName({name}), restart broker or "
                    "create a new listener for update"
                )
            )
        if entrance.stores is not None:
            try:
                reloaded_stores(entrance, ListenerConfig(new, name, entrance.config.protocol))
            except ConfigError as error:
                raise ConfigError(
                    _RECONFIGURATION.format(
                        "Validation of dynamic config update of SSLFactory failed: "
                        f"org.apache.kafka.common.config.ConfigException: {error}"
                    )
                ) from None


def check_new(name: str, host: str) -> None:
    """
    Check the host of a listener that is to be opened.

    Raises:
        ConfigError: it is a name, which would have to be looked up while the broker serves others.
    """
    import ipaddress

    if host in ("", "localhost"):
        return
    try:
        ipaddress.ip_address(host)
    except ValueError:
        raise ConfigError(
            f"listeners has the host {host!r} for {name}, which is not an address. Host names can be given at the start only."
        ) from None


def reloaded_stores(entrance: Entrance, config: ListenerConfig) -> "TlsStores | None":
    """
    The stores of an open listener under a configuration; None if neither the configuration nor a file has changed.

    Raises:
        ConfigError: they cannot be used, or clients would not take them for those of the same broker.
    """
    # Imported late: a start without TLS does without it.
    from kohort.server.listeners.tls_stores import check_compatible, load_stores

    old = entrance.stores
    assert old is not None, "the listener has TLS"
    if _stores(config) == old.values and not old.has_changed():
        return None
    new = load_stores(config)
    check_compatible(old, new, config)
    return new


def _stores(config: ListenerConfig) -> Mapping[str, object]:
    return {key: config[key] for key in STORE_KEYS}


def _fixed(config: BrokerConfig, name: str) -> dict[str, str]:
    """The values of a listener that it keeps while it is open."""
    prefix = listener_prefix(name)
    own = {**config.of_listeners, **config.dynamic}
    return {
        key: text for key, text in own.items() if key.startswith(prefix) and key.removeprefix(prefix) not in _CHANGEABLE
    }
