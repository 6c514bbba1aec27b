"""The options of `kohort serve` about users and TLS."""

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.broker.configs.definitions import BrokerConfig
    from kohort.security.protocols import SecurityProtocol
    from kohort.server.listeners.made_certificates import MadeCertificates
    from kohort.server.settings import Passwords, Secret

_HOST = re.compile(r"://(\[[^\]]*\]|[^\[\]:/,]*):")
_STORES = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")


def add_security_options(options: argparse.ArgumentParser) -> None:
    group = options.add_argument_group("users and encryption (docs/howto/secure.md)")
    group.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="NAME:SECRET",
        help="a user of PLAIN and SCRAM; unless listeners is set, the listener then has SASL. Everyone on the machine "
        "can see the secret in the list of processes; repeatable",
    )
    group.add_argument(
        "--users-file",
        type=Path,
        metavar="FILE",
        help="the same, one NAME:SECRET a line; the environment variable KOHORT_USERS has such lines, too",
    )
    group.add_argument(
        "--tls",
        action="store_true",
        help="make certificates at the start and encrypt the listener, for tests only; the ready line tells where they are",
    )
    group.add_argument(
        "--metrics-token-file",
        type=Path,
        metavar="FILE",
        help="the token that scrapers of other machines show; the environment variable KOHORT_METRICS_TOKEN has it, too",
    )
    group.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="let listeners that are not on loopback serve clients without authentication",
    )


def default_protocol(users: "Passwords", *, is_encrypted: bool) -> "SecurityProtocol":
    """The security protocol of the listener of `--host` and `--port`."""
    from kohort.security.protocols import SecurityProtocol

    with_sasl, without = (
        (SecurityProtocol.SASL_SSL, SecurityProtocol.SSL)
        if is_encrypted
        else (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.PLAINTEXT)
    )
    return with_sasl if users else without


def default_configs(users: "Passwords", made: "MadeCertificates | None") -> dict[str, str]:
    """Configurations that hold unless the operator sets others."""
    configs = {} if made is None else made.configs()
    if users:
        from kohort.broker.configs.sasl_configs import MECHANISMS_OF_USERS  # with all of SASL

        configs["sasl.enabled.mechanisms"] = ",".join(MECHANISMS_OF_USERS)
    return configs


def make_certificates(options: argparse.Namespace, config: "BrokerConfig") -> "MadeCertificates | None":
    """
    Make the certificates of `--tls`.

    Raises:
        ConfigError: the operator has set stores, or there is no library that makes certificates.
    """
    if not options.tls:
        return None
    from kohort.server.listeners.made_certificates import MadeCertificates

    stores = sorted(
        name
        for name in {**config.explicit, **config.of_listeners}
        if any(f".{name}".find(f".{store}") >= 0 for store in _STORES)
    )
    if stores:
        raise ConfigError(f"--tls makes the stores of the broker; leave it out, or {stores[0]}")
    texts = (config.explicit.get(key, "") for key in ("listeners", "advertised.listeners"))
    hosts = [host.strip("[]") for text in texts for host in _HOST.findall(text)]
    advertised = options.advertised.rpartition(":")[0].strip("[]") if options.advertised else ""
    return MadeCertificates(host for host in (options.host, advertised, *hosts) if host not in ("", "0.0.0.0", "::"))


def metrics_token(options: argparse.Namespace) -> "Secret | None":
    """The token of the metrics. Raises: ConfigError: as `read_token`."""
    from kohort.security.http_access import read_token
    from kohort.server.settings import Secret

    token = read_token(options.metrics_token_file, os.environ)
    return None if token is None else Secret(token)


def users_of(options: argparse.Namespace, environment: Mapping[str, str] | None = None) -> "Passwords":
    """The users of the options and of the environment. Raises: ConfigError: as `read_users`."""
    from kohort.server.users import read_users

    return read_users(options.user, options.users_file, os.environ if environment is None else environment)
