"""
Configurations of single listeners: `listener.name.NAME.KEY` over `KEY`.

The keys of a SASL mechanism may have its name, too: `listener.name.NAME.MECHANISM.KEY`. Both names are in lower case.

Source: KIP-103, KIP-282; Kafka AbstractConfig.valuesWithPrefixOverride, ListenerName.configPrefix, saslMechanismConfigPrefix.
"""

from typing import Final

from kohort.broker.configs.definitions import BROKER_KEYS, BrokerConfig, ConfigValues
from kohort.broker.configs.values import Value
from kohort.model.errors import ConfigError
from kohort.security.protocols import SecurityProtocol

CLIENT_AUTH: Final = "ssl.client.auth"
REQUIRED: Final = "required"


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
