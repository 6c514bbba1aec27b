"""
The configuration of SASL on one listener.

What Kafka would load by the name of a Java class is chosen here by the names that Kafka's own classes have; no other name is
accepted. Unlike Kafka, a mechanism without users or keys is no mechanism: the listener does not start.

Source: KIP-255, KIP-768, KIP-1139; Kafka SaslConfigs, BrokerSecurityConfigs, JaasContext.loadServerContext,
OAuthBearerValidatorCallbackHandler, OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kohort.broker.configs.listener_configs import ListenerConfig, listener_prefix
from kohort.model.errors import ConfigError
from kohort.model.ids import java_string_hash
from kohort.model.numbers import is_number
from kohort.security.credentials import SCRAM_HASHES
from kohort.security.jaas import KEY as JAAS
from kohort.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas
from kohort.security.sasl.access_tokens import TokenValidator, Unsecured
from kohort.security.sasl.listener import SaslConfig
from kohort.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN
from kohort.security.sasl.signed_tokens import Signed, SigningKeys

MECHANISMS_OF_USERS: Final = (PLAIN, *SCRAM_HASHES)
"""The mechanisms for which the users exist that a broker is started with."""
_MODULES: Final = {PLAIN: PLAIN_MODULE, OAUTHBEARER: OAUTHBEARER_MODULE} | dict.fromkeys(SCRAM_HASHES, SCRAM_MODULE)
_HANDLER: Final = "sasl.server.callback.handler.class"
_OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
_SIGNED: Final = (
    f"{_OAUTH}OAuthBearerValidatorCallbackHandler",
    f"{_OAUTH}secured.OAuthBearerValidatorCallbackHandler",
)
_UNSECURED: Final = f"{_OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATOR: Final = "sasl.oauthbearer.jwt.validator.class"
_VALIDATORS: Final = (f"{_OAUTH}DefaultJwtValidator", f"{_OAUTH}BrokerJwtValidator")
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_UNSECURED_OPTION: Final = "unsecuredValidator"
_BUCKETS: Final = 16


class KeySetPlace(NamedTuple):
    """
    Where the keys of an issuer are.

    Attributes:
        url: of a file or a server.
        refresh_ms: how old the keys of a server may become.
        backoff_ms, backoff_max_ms: before a server is asked again that did not answer: at first, and at most.
    """

    url: str
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int


def sasl_config(
    config: ListenerConfig, *, has_passwords: bool, open_keys: Callable[[KeySetPlace], SigningKeys]
) -> SaslConfig:
    """
    Read the configuration of a listener with SASL.

    Args:
        has_passwords: whether there are users of PLAIN beside those of `sasl.jaas.config`.
        open_keys: reads the keys of an issuer for the first time.

    Raises:
        ConfigError: a value is missing, invalid or not supported.
    """
    mechanisms = tuple(sorted(dict.fromkeys(config.get_list("sasl.enabled.mechanisms")), key=_bucket))
    users: dict[str, str] = {}
    tokens: TokenValidator | None = None
    for mechanism in mechanisms:
        module = _login_module(config, mechanism)
        if mechanism == PLAIN:
            _check_handler(config, mechanism)
            users = {} if module is None else module.users
            if not users and not has_passwords:
                raise ConfigError(
                    f"The listener {config.name} has PLAIN and no user: set {_prefix(config, PLAIN)}{JAAS} to "
                    f'{PLAIN_MODULE} required user_NAME="PASSWORD"; or start the broker with --user or --users-file'
                )
        elif mechanism == OAUTHBEARER:
            tokens = _token_validator(config.of_mechanism(OAUTHBEARER), module, open_keys)
        else:
            _check_handler(config, mechanism)
    session_ms = {
        mechanism: config.of_mechanism(mechanism).get_int("connections.max.reauth.ms") for mechanism in mechanisms
    }
    return SaslConfig(
        mechanisms,
        users,
        config.get_int("sasl.server.max.receive.size"),
        config.get_int("connection.failed.authentication.delay.ms"),
        session_ms,
        tokens,
    )


def _bucket(mechanism: str) -> int:
    """The place of a mechanism in Kafka's lists, which have the order of a hash set. Source: java.util.HashMap.hash."""
    number = java_string_hash(mechanism) & 0xFFFF_FFFF
    return (number ^ number >> 16) % _BUCKETS


def _prefix(config: ListenerConfig, mechanism: str) -> str:
    return f"{listener_prefix(config.name)}{mechanism.lower()}."


def _login_module(config: ListenerConfig, mechanism: str) -> LoginModule | None:
    text = config.of_mechanism(mechanism).own_text(JAAS)
    if mechanism == GSSAPI or text is None:
        return None
    module = parse_jaas(text)
    if module.name != _MODULES.get(mechanism):
        raise ConfigError(
            f"{_prefix(config, mechanism)}{JAAS} has the module {module.name}; the module of {mechanism} is "
            f"{_MODULES.get(mechanism)}"
        )
    return module


def _check_handler(config: ListenerConfig, mechanism: str) -> None:
    name = config.of_mechanism(mechanism).get_str(_HANDLER)
    if name is not None:
        raise ConfigError(
            f"{_prefix(config, mechanism)}{_HANDLER}: Java classes cannot be loaded; users are those of {JAAS}, of --user "
            "and --users-file, and for SCRAM those of AlterUserScramCredentials"
        )


def _token_validator(
    config: ListenerConfig, module: LoginModule | None, open_keys: Callable[[KeySetPlace], SigningKeys]
) -> TokenValidator:
    handler = config.get_str(_HANDLER)
    options: Mapping[str, str] = {} if module is None else module.options
    if handler is None and config.get_str(_URL) is None and any(name.startswith("unsecured") for name in options):
        handler = _UNSECURED
    if handler == _UNSECURED:
        return _unsecured(options)
    if handler is not None and handler not in _SIGNED:
        raise ConfigError(f"{_HANDLER}: the class {handler} is not known; use {_SIGNED[0]} or {_UNSECURED}")
    if config.get_str(_VALIDATOR) not in _VALIDATORS:
        raise ConfigError(f"{_VALIDATOR}: only {_VALIDATORS[0]} and {_VALIDATORS[1]} are known")
    return _signed(config, open_keys)


def _unsecured(options: Mapping[str, str]) -> Unsecured:
    found = {name.removeprefix(_UNSECURED_OPTION): value for name, value in options.items()}
    skew = found.get("AllowableClockSkewMs", "0").strip() or "0"
    if not is_number(skew, 0, (1 << 31) - 1):
        raise ConfigError(f"{JAAS}: {_UNSECURED_OPTION}AllowableClockSkewMs must be a number of milliseconds")
    return Unsecured(
        found.get("PrincipalClaimName", "").strip() or "sub",
        found.get("ScopeClaimName", "").strip() or "scope",
        tuple(found.get("RequiredScope", "").split()),
        int(skew),
    )


def _signed(config: ListenerConfig, open_keys: Callable[[KeySetPlace], SigningKeys]) -> Signed:
    url = config.get_str(_URL)
    if not url:
        raise ConfigError(
            f"The listener {config.name} has OAUTHBEARER and no keys: set {_URL} to the JSON Web Key Set of the issuer. For "
            f"tests with tokens that anybody can make, set {_prefix(config, OAUTHBEARER)}{_HANDLER} to {_UNSECURED}"
        )
    started = {**config.broker.explicit, **config.broker.of_listeners}
    if not any(name.endswith(_URL) and text == url for name, text in started.items()):
        raise ConfigError(
            f"{_URL} was not in the configuration of the start: a client cannot choose what the broker reads"
        )
    audiences = config.get_list("sasl.oauthbearer.expected.audience")
    issuer = config.get_str("sasl.oauthbearer.expected.issuer")
    for what, value in (("audience", audiences), ("issuer", issuer)):
        allows_any = f"sasl.oauthbearer.allow.unverified.{what}"
        if not value and not config.get_bool(allows_any):
            raise ConfigError(
                f"sasl.oauthbearer.expected.{what} is not set: tokens of the issuer for others would be accepted. Set it, or "
                f"set {allows_any}=true"
            )
    place = KeySetPlace(
        url,
        config.get_int("sasl.oauthbearer.jwks.endpoint.refresh.ms"),
        config.get_int("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        config.get_int("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    )
    return Signed(
        open_keys(place),
        audiences or None,
        issuer or None,
        config.get_int("sasl.oauthbearer.clock.skew.seconds"),
        config.get_str("sasl.oauthbearer.sub.claim.name") or "sub",
        config.get_str("sasl.oauthbearer.scope.claim.name") or "scope",
    )
