"""
Versions of TLS and cipher suites of a listener, by Java's names.

Source: Kafka SslConfigs; the names of RFC 5246 and RFC 8446, as Java has them, and OpenSSL's.
"""

import ssl
from typing import Final, NamedTuple

from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.model.errors import ConfigError

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OF_1_3: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_CHACHA: Final = "CHACHA20-POLY1305"


class Suites(NamedTuple):
    """
    Attributes:
        oldest: version of TLS.
        newest: version of TLS.
        ciphers: for versions up to 1.2, as OpenSSL's list; "" for its default.
        of_1_3: the suites of TLS 1.3 that are allowed. The library offers all of them, so a connection is looked at
            after its handshake.
    """

    oldest: ssl.TLSVersion
    newest: ssl.TLSVersion
    ciphers: str
    of_1_3: frozenset[str]

    def apply(self, context: ssl.SSLContext) -> None:
        context.minimum_version, context.maximum_version = self.oldest, self.newest
        if self.ciphers:
            context.set_ciphers(self.ciphers)

    def allow(self, cipher: tuple[str, str, int] | None) -> bool:
        """Whether a connection may have this suite, as `ssl.SSLObject.cipher` tells it."""
        return cipher is not None and (cipher[0] not in _OF_1_3 or cipher[0] in self.of_1_3)


def chosen_suites(config: ListenerConfig) -> Suites:
    """
    The versions and suites of a listener.

    Raises:
        ConfigError: a version or a suite is unknown, or none is left.
    """
    names = config.get_list("ssl.enabled.protocols")
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        raise ConfigError(
            f"ssl.enabled.protocols has {', '.join(unknown) or 'no version'}; Kohort has {', '.join(_VERSIONS)}"
        )
    versions = {_VERSIONS[name] for name in names}
    suites = config.get_list("ssl.cipher.suites")
    if not suites:
        return Suites(min(versions), max(versions), "", _OF_1_3)
    older = [_openssl_name(name) for name in suites if name not in _OF_1_3]
    for name, ours in zip((name for name in suites if name not in _OF_1_3), older, strict=True):
        if not _is_known(ours):
            raise ConfigError(f"ssl.cipher.suites has {name}, which the TLS library of this Python does not have")
    if not older:
        versions.discard(ssl.TLSVersion.TLSv1_2)
    if len(older) == len(suites):
        versions.discard(ssl.TLSVersion.TLSv1_3)
    if not versions:
        raise ConfigError("no suite of ssl.cipher.suites belongs to a version of ssl.enabled.protocols")
    return Suites(min(versions), max(versions), ":".join(older), _OF_1_3 & set(suites))


def _openssl_name(name: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` as `ECDHE-RSA-AES128-GCM-SHA256`."""
    exchange, _, rest = name.removeprefix("TLS_").removeprefix("SSL_").partition("_WITH_")
    cipher = rest.replace("AES_", "AES").replace("CAMELLIA_", "CAMELLIA").replace("_CBC", "").replace("_", "-")
    if cipher.startswith(_CHACHA):
        cipher = _CHACHA
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


def _is_known(name: str) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.set_ciphers(name)
    except ssl.SSLError:
        return False
    return any(each["name"] == name for each in context.get_ciphers())
