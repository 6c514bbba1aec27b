"""
Key store and trust store of a listener, in PEM, and the TLS context that is made of them.

Java key stores (JKS, PKCS12) are refused with the command that converts them.

Source: KIP-651; Kafka DefaultSslEngineFactory, SslFactory.
"""

import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kohort.broker.configs.listener_configs import STORE_KEYS, ListenerConfig
from kohort.model.errors import ConfigError, WireError
from kohort.security.distinguished_names import alternative_names, subject_of
from kohort.security.pem import KeyPair, certificates, private_key
from kohort.server.listeners.tls_suites import Suites, chosen_suites

_PEM: Final = "PEM"
_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class TlsStores:
    """
    The stores of one listener as they were when they were read.

    Args:
        values: the configurations that they were read by. `repr()` shows none.
        context: for new connections.
        suites: those that a connection may end up with.
        subject: the name of the broker's certificate.
        alternative_names: of it.
        has_trust: whether there is a trust store.
        files: the files with their times of modification.
    """

    def __init__(
        self,
        values: Mapping[str, object],
        context: ssl.SSLContext,
        suites: Suites,
        subject: str,
        names: frozenset[bytes],
        files: dict[str, int],
        *,
        has_trust: bool,
    ) -> None:
        self.values = values
        self.context = context
        self.suites = suites
        self.subject = subject
        self.alternative_names = names
        self.has_trust = has_trust
        self.files = files

    def has_changed(self) -> bool:
        """Whether a file is another one than when it was read. One that is missing has not changed: it may be in exchange."""
        return any(_modified(path) not in (0, time) for path, time in self.files.items())

    def ignore_changes(self) -> None:
        """Take the present files for known ones, so that they are not read again before their next change."""
        self.files = {path: _modified(path) or time for path, time in self.files.items()}


def _modified(path: str) -> int:
    """The time of a file's modification; 0 if it does not exist."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


def load_stores(config: ListenerConfig) -> TlsStores:
    """
    Read the stores. Blocks for the files, and for the derivation of the key of an encrypted private key.

    Raises:
        ConfigError: a store is missing, or cannot be used. The message has no secret.
    """
    files: dict[str, int] = {}
    pair = _key_pair(config, files)
    anchors = _anchors(config, files)
    suites = chosen_suites(config)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites.apply(context)
    # No sessions are resumed: each connection shows its certificate anew, to the trust store of the moment.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    where = config.get_str("ssl.keystore.location")
    with _as_file(pair.key + pair.certificates) as path:
        try:
            context.load_cert_chain(path, password=config.get_str("ssl.key.password") or _no_password)
        except ssl.SSLError as error:
            is_encrypted = pair.key.startswith("-----BEGIN ENCRYPTED") and error.reason != "KEY_VALUES_MISMATCH"
            why = "ssl.key.password does not decrypt the private key" if is_encrypted else _reason(error)
            raise _failed(where, why) from None
        except ValueError as error:
            raise _failed(where, str(error)) from None
    certificate = ssl.PEM_cert_to_DER_cert(pair.certificates[: pair.certificates.index("-----END") + 26])
    mode = _MODES[config.client_auth]
    if anchors is not None:
        # Any certificate of the store is an anchor, whoever has signed it.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(cadata=anchors)
        except ssl.SSLError as error:
            raise ConfigError(f"Failed to load PEM SSL truststore: {_reason(error)}") from None
    elif mode is not ssl.CERT_NONE:
        raise ConfigError(
            f"listener {config.name} has ssl.client.auth={config.client_auth} and no trust store; set ssl.truststore.type=PEM "
            "and ssl.truststore.location to a file with the certificates of the authorities of clients"
        )
    context.verify_mode = mode
    try:
        subject, names = subject_of(certificate), alternative_names(certificate)
    except WireError as error:
        raise _failed(where, str(error)) from None
    values = {key: config[key] for key in STORE_KEYS}
    return TlsStores(values, context, suites, subject, names, files, has_trust=anchors is not None)


def check_compatible(old: TlsStores, new: TlsStores, config: ListenerConfig) -> None:
    """
    Check that the clients of a listener would take its new stores for those of the same broker.

    Raises:
        ConfigError: with the beginning of Kafka's message.

    Source: Kafka SslFactory.CertificateEntries.ensureCompatible, validateReconfiguration.
    """
    if not config.get_bool("ssl.allow.dn.changes") and _plain(new.subject) != _plain(old.subject):
        raise ConfigError(
            f"Keystore DistinguishedName does not match: existing={{DN={old.subject}}}, new={{DN={new.subject}}}"
        )
    if not config.get_bool("ssl.allow.san.changes") and not new.alternative_names >= old.alternative_names:
        missing = len(old.alternative_names - new.alternative_names)
        raise ConfigError(f"Keystore SubjectAltNames do not match: {missing} of the existing ones are missing")
    if new.has_trust and not old.has_trust:
        raise ConfigError("Cannot add SSL truststore to an existing listener for which no truststore was configured.")


def _plain(name: str) -> str:
    """A name without what does not distinguish names: letters' case, and repeated blanks."""
    return " ".join(name.casefold().split())


def _key_pair(config: ListenerConfig, files: dict[str, int]) -> KeyPair:
    kind, path = _kind(config, "ssl.keystore.type"), config.get_str("ssl.keystore.location")
    key, chain = config.get_str("ssl.keystore.key"), config.get_str("ssl.keystore.certificate.chain")
    has_password = config["ssl.keystore.password"] is not None
    if key is not None:
        if kind != _PEM:
            raise ConfigError(f"SSL private key can be specified only for PEM, but key store type is {kind}.")
        if chain is None:
            raise ConfigError("SSL private key is specified, but certificate chain is not specified.")
        if path is not None:
            raise ConfigError("Both SSL key store location and separate private key are specified.")
    elif chain is not None:
        raise ConfigError("SSL certificate chain is specified, but private key is not specified")
    elif path is None:
        raise ConfigError(
            f"listener {config.name} has {config.protocol} and no key store; set ssl.keystore.type=PEM and "
            "ssl.keystore.location to a file with a private key and its certificates"
        )
    elif kind != _PEM:
        raise _not_pem("ssl.keystore", kind, path)
    if has_password:
        raise ConfigError(
            "SSL key store password cannot be specified with PEM format, only key password may be specified."
        )
    try:
        if key is not None and chain is not None:
            return KeyPair(private_key(key), certificates(chain))
        text = _read(path or "", files)
        return KeyPair(private_key(text), certificates(text))
    except ConfigError as error:
        raise _failed(path, str(error)) from None


def _anchors(config: ListenerConfig, files: dict[str, int]) -> str | None:
    kind, path = _kind(config, "ssl.truststore.type"), config.get_str("ssl.truststore.location")
    inline = config.get_str("ssl.truststore.certificates")
    has_password = config["ssl.truststore.password"] is not None
    if inline is not None:
        if kind != _PEM:
            raise ConfigError(f"SSL trust store certs can be specified only for PEM, but trust store type is {kind}.")
        if path is not None:
            raise ConfigError("Both SSL trust store location and separate trust certificates are specified.")
    elif path is None:
        if has_password:
            raise ConfigError("SSL trust store is not specified, but trust store password is specified.")
        return None
    elif kind != _PEM:
        raise _not_pem("ssl.truststore", kind, path)
    if has_password:
        raise ConfigError("SSL trust store password cannot be specified for PEM format.")
    try:
        return certificates(inline if inline is not None else _read(path or "", files))
    except ConfigError as error:
        raise ConfigError(
            f"Failed to load PEM SSL truststore {path or 'of ssl.truststore.certificates'}: {error}"
        ) from None


def _kind(config: ListenerConfig, key: str) -> str:
    return (config.get_str(key) or "").upper()


def _not_pem(store: str, kind: str, path: str) -> ConfigError:
    name = f"{path}.pem"
    if kind == "PKCS12":
        command = f"openssl pkcs12 -in {path} -out {name}"
    else:
        command = (
            f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12 && "
            f"openssl pkcs12 -in {path}.p12 -out {name}"
        )
    return ConfigError(
        f"{store}.type is {kind}; Kohort reads PEM. Convert the store with: {command}; then set {store}.type=PEM and "
        f"{store}.location={name}, without a store password"
    )


def _failed(path: str | None, why: str) -> ConfigError:
    return ConfigError(f"Failed to load PEM SSL keystore {path or 'of ssl.keystore.key'}: {why}")


def _reason(error: ssl.SSLError) -> str:
    """The reason of the TLS library, in words."""
    return (error.reason or "it is not PEM").replace("_", " ").lower()


def _no_password() -> str:
    raise ValueError("the private key is encrypted; set ssl.key.password, its password")


def _read(path: str, files: dict[str, int]) -> str:
    try:
        with Path(path).open(encoding="latin-1") as file:
            files[path] = os.fstat(file.fileno()).st_mtime_ns
            return file.read(STORE_BYTES_MAX)
    except OSError as error:
        raise ConfigError(error.strerror or str(error)) from None


STORE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes that are read of a file. The certificates of all public authorities are a quarter of a megabyte."""


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """A file with the text for the TLS library, which reads keys from files only: in memory where the system can."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("kohort-key")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:  # only its owner may read it
        file.write(text.encode())
        file.flush()
        yield file.name
