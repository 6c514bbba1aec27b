"""
Configurations of single listeners: `listener.name.NAME.KEY` over `KEY`.

The keys of a SASL mechanism may have its name, too: `listener.name.NAME.MECHANISM.KEY`. Both names are in lower case.

Source: KIP-103, KIP-282; Kafka AbstractConfig.valuesWithPrefixOverride, ListenerName.configPrefix, saslMechanismConfigPrefix.
"""

import re
from collections.abc import Iterable
from typing import Final

from kohort.broker.configs.definitions import BROKER_KEYS, LISTENER_PREFIX, BrokerConfig, ConfigValues
from kohort.broker.configs.values import Value
from kohort.model.errors import ConfigError
from kohort.model.numbers import is_port
from kohort.security.protocols import SecurityProtocol

CLIENT_AUTH: Final = "ssl.client.auth"
REQUIRED: Final = "required"
_URI: Final = re.compile(r"([a-zA-Z0-9_-]+)://(?:\[([0-9a-fA-F:%.]*)\]|([^\[\]:/]*)):(\d+)")
LISTENERS: Final = "listeners"
PROTOCOLS: Final = "listener.security.protocol.map"
STORE_KEYS: Final = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
"""The keys that make a new context while the broker runs. Source: Kafka SslConfigs.RECONFIGURABLE_CONFIGS."""


class ListenerConfig(ConfigValues):
    """
    The effective values of one listener, at this moment.

    Args:
        broker: the configuration of its broker.
        name: in upper case, as in `listeners`.
        mechanism: a SASL mechanism, whose own values come first; "" for none.
    """

    def __init__(
        self,
        broker: BrokerConfig,
        name: str,
        protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT,
        mechanism: str = "",
    ) -> None:
        self.broker = broker
        self.name = name
        self.protocol = protocol
        prefix = listener_prefix(name)
        self._prefixes = (f"{prefix}{mechanism.lower()}.", prefix) if mechanism else (prefix,)

    def of_mechanism(self, mechanism: str) -> "ListenerConfig":
        """The same listener's values for one SASL mechanism."""
        return ListenerConfig(self.broker, self.name, self.protocol, mechanism)

    def own_text(self, name: str) -> str | None:
        """The value that is set for this listener alone; None if there is none."""
        broker = self.broker
        for prefix in self._prefixes:
            for layer in (broker.dynamic, broker.of_listeners):
                if (text := layer.get(prefix + name)) is not None:
                    return text
        return None

    def __getitem__(self, name: str, /) -> Value:
        text = self.own_text(name)
        return self.broker[name] if text is None else BROKER_KEYS[name].parse(text)

    @property
    def needs_certificate(self) -> bool:
        """Whether a client without a certificate is refused. Source: Kafka ChannelBuilders.channelBuilderConfigs."""
        return self.client_auth == REQUIRED

    @property
    def client_auth(self) -> str:
        """`ssl.client.auth`; on a listener with SASL only its own value counts."""
        if self.protocol.has_sasl and self.own_text(CLIENT_AUTH) is None:
            return "none"
        return self.get_str(CLIENT_AUTH) or "none"

    @property
    def is_open(self) -> bool:
        """Whether everyone who can reach the listener is served."""
        return not self.protocol.has_sasl and not (self.protocol.has_tls and self.needs_certificate)


def has_listener_keys(names: Iterable[str]) -> bool:
    """Whether one of the keys is about listeners."""
    return any(name in (LISTENERS, PROTOCOLS) or LISTENER_PREFIX.fullmatch(name) for name in names)


def listener_prefix(name: str) -> str:
    """The beginning of the names of a listener's own keys."""
    return f"listener.name.{name.lower()}."


def protocol_map(text: str) -> dict[str, SecurityProtocol]:
    """
    The security protocol of each listener's name.

    Raises:
        ConfigError: a protocol is unknown, or a pair has another form.
    """
    found: dict[str, SecurityProtocol] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, separator, protocol = (part.strip().upper() for part in pair.partition(":"))
        if not separator or protocol not in SecurityProtocol.__members__:
            known = ", ".join(SecurityProtocol)
            raise ConfigError(
                f"listener.security.protocol.map has {pair!r}; write NAME:PROTOCOL with one of the protocols {known}"
            )
        found[name] = SecurityProtocol(protocol)
    return found


def parse_listeners(config: BrokerConfig, key: str = LISTENERS) -> list[tuple[str, str, int]]:
    """
    Name, host and port of each listener of a configuration.

    Raises:
        ConfigError: an address has another form, or a name is given twice.

    Source: Kafka SocketServerConfigs.listenerListToEndPoints.
    """
    found: dict[str, tuple[str, str, int]] = {}
    for text in config.get_list(key):
        matched = _URI.fullmatch(text)
        if matched is None or not is_port(matched[4], 0):
            raise ConfigError(f"{key} has {text!r}; write NAME://HOST:PORT, for example PLAINTEXT://localhost:9092")
        name = matched[1].upper()
        if name in found:
            raise ConfigError(f"{key} has two addresses of {name}; give each listener a name of its own")
        found[name] = name, matched[2] or matched[3] or "", int(matched[4])
    return list(found.values())
