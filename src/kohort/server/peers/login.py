"""
How a node speaks to the inter-broker listener of the others: Kafka's configurations, read as those of a client.

- `inter.broker.listener.name`, or the first listener of the protocol `security.inter.broker.protocol`; without either the first
  listener that clients are told.
- TLS: trust store, key store and `ssl.endpoint.identification.algorithm` of that listener.
- SASL: `sasl.mechanism.inter.broker.protocol`, and user and password in `sasl.jaas.config` of the listener and mechanism,
  beside its users: `listener.name.NAME.plain.sasl.jaas.config=... required username="..." password="..." user_...="...";`.
  For OAUTHBEARER the keys `sasl.oauthbearer.*` of clients.

Source: Kafka KafkaConfig.getInterBrokerListenerNameAndSecurityProtocol, ChannelBuilders.clientChannelBuilder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import STORE_KEYS, ListenerConfig
from kohort.client.security import Security
from kohort.model.errors import ConfigError
from kohort.security.jaas import KEY as JAAS
from kohort.security.sasl.mechanism import GSSAPI
from kohort.server.listeners.addresses import ListenerAddress

_LISTENER: Final = "inter.broker.listener.name"
_PROTOCOL: Final = "security.inter.broker.protocol"
_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_TLS: Final = (
    *(name for name in STORE_KEYS if not name.endswith("store.password")),
    "ssl.endpoint.identification.algorithm",
)
_TOKENS: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
)


def inter_broker_listener(config: BrokerConfig, addresses: Sequence[ListenerAddress]) -> ListenerAddress:
    """
    The listener at which the nodes ask each other.

    Raises:
        ConfigError: no listener has the name or the protocol.
    """
    told = [address for address in addresses if address.is_advertised]
    if _LISTENER in config.explicit:
        name = (config.get_str(_LISTENER) or "").upper()
        found = [address for address in told if address.name == name]
        wanted = f"{_LISTENER} is {name}"
    elif _PROTOCOL in config.explicit:
        protocol = config.get_str(_PROTOCOL)
        found = [address for address in told if address.protocol == protocol]
        wanted = f"{_PROTOCOL} is {protocol}"
    else:
        found, wanted = told, "nodes ask each other"
    if not found:
        raise ConfigError(f"{wanted}, and advertised.listeners has no such listener")
    return found[0]


def inter_broker_security(config: BrokerConfig, address: ListenerAddress) -> Security:
    """
    TLS and login of the connections to other nodes.

    Raises:
        ConfigError: a value is missing, or cannot be used.
    """
    protocol = address.protocol
    listener = ListenerConfig(config, address.name, protocol)
    configs = {"security.protocol": protocol.name}
    if protocol.has_tls:
        found = {name: listener.get_str(name) for name in _TLS}
        for store in ("ssl.keystore", "ssl.truststore"):
            if found[f"{store}.location"] is None:
                del found[f"{store}.type"]  # It has a default, which says nothing without a store.
        configs |= {name: text for name, text in found.items() if text is not None}
    if protocol.has_sasl:
        mechanism = listener.get_str(_MECHANISM) or GSSAPI
        if mechanism == GSSAPI:
            raise ConfigError(
                f"{_MECHANISM} is {GSSAPI}, and the nodes ask each other at {address.name}, which has SASL: set it to PLAIN, "
                "SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
            )
        of_mechanism = listener.of_mechanism(mechanism)
        configs["sasl.mechanism"] = mechanism
        texts = {JAAS: of_mechanism.own_text(JAAS)} | {name: of_mechanism.get_str(name) for name in _TOKENS}
        configs |= {name: text for name, text in texts.items() if text is not None}
    try:
        return Security.parse(configs)
    except ConfigError as error:
        raise ConfigError(f"the nodes cannot ask each other at the listener {address.name}: {error}") from None
