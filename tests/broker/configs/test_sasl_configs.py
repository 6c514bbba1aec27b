"""The configuration of SASL on a listener; what is missing or unknown refuses the start."""

from typing import Any

import pytest

from kohort.broker.configs.definitions import BrokerConfig
from kohort.broker.configs.listener_configs import ListenerConfig
from kohort.broker.configs.sasl_configs import KeySetPlace, sasl_config
from kohort.model.errors import ConfigError
from kohort.security.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE, SCRAM_MODULE
from kohort.security.protocols import SecurityProtocol
from kohort.security.sasl.access_tokens import Unsecured
from kohort.security.sasl.listener import SaslConfig
from kohort.security.sasl.signed_tokens import Signed, SigningKeys

PREFIX = "listener.name.inside."
HANDLER = f"{PREFIX}oauthbearer.sasl.server.callback.handler.class"
OAUTH = "org.apache.kafka.common.security.oauthbearer."
URL = "sasl.oauthbearer.jwks.endpoint.url"
SIGNED = {
    URL: "https://issuer.test/keys",
    "sasl.oauthbearer.expected.audience": "kafka,broker",
    "sasl.oauthbearer.expected.issuer": "https://issuer.test",
}


class NoKeys:
    """Keys of an issuer that are never asked for."""

    def __init__(self, place: KeySetPlace) -> None:
        self.place = place

    def find(self, name: str | None) -> tuple[()]:
        return ()


def read(mechanisms: str | None, *, has_passwords: Any = False, dynamic: Any = None, **configs: Any) -> SaslConfig:
    started = dict(configs) if mechanisms is None else {"sasl.enabled.mechanisms": mechanisms, **configs}
    broker = BrokerConfig(started).with_dynamic(dynamic or {}, {})
    listener = ListenerConfig(broker, "INSIDE", SecurityProtocol.SASL_PLAINTEXT)

    def open_keys(place: KeySetPlace) -> SigningKeys:
        return NoKeys(place)

    return sasl_config(listener, has_passwords=has_passwords, open_keys=open_keys)


def refusal(mechanisms: str | None, **configs: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        read(mechanisms, **configs)
    return str(raised.value)


def test_defaults() -> None:
    config = read("SCRAM-SHA-256")
    assert (config.frame_bytes_max, config.failure_delay_ms, config.session_ms) == (524_288, 100, {"SCRAM-SHA-256": 0})


def test_mechanisms_are_in_the_order_of_kafka() -> None:
    config = read("SCRAM-SHA-256, PLAIN ,SCRAM-SHA-512,PLAIN", has_passwords=True)
    assert config.mechanisms == ("PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256")


def test_values_of_the_listener_and_of_its_mechanism_come_first() -> None:
    config = read(
        "SCRAM-SHA-256",
        **{
            f"{PREFIX}sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
            f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";',
            "connections.max.reauth.ms": "5000",
            f"{PREFIX}connections.max.reauth.ms": "4000",
            f"{PREFIX}plain.connections.max.reauth.ms": "3000",
            f"{PREFIX}sasl.server.max.receive.size": "1000",
            "connection.failed.authentication.delay.ms": "7",
        },
    )
    assert config.session_ms == {"PLAIN": 3_000, "SCRAM-SHA-512": 4_000}
    assert (config.frame_bytes_max, config.failure_delay_ms, config.users) == (1_000, 7, {"alice": "secret"})
    assert "secret" not in repr(config)


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", SCRAM_MODULE), ("SCRAM-SHA-256", PLAIN_MODULE), ("PLAIN", "com.evil.Module")]
)
def test_cve_2025_27818_27819_2023_25194_only_the_module_of_the_mechanism(mechanism: str, module: str) -> None:
    """CVE-2025-27818, CVE-2025-27819, CVE-2023-25194: a configuration named a class that was loaded."""
    jaas = {f"{PREFIX}{mechanism.lower()}.sasl.jaas.config": f'{module} required user_a="secret";'}
    text = refusal(mechanism, has_passwords=True, **jaas)
    assert module in text
    assert "secret" not in text


def test_nisshi_695_plain_without_users() -> None:
    """nisshi#695: PLAIN took any password."""
    assert "The listener INSIDE has PLAIN and no user" in refusal("PLAIN")
    jaas = {f"{PREFIX}plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="a" password="b";'}
    assert "The listener INSIDE has PLAIN and no user" in refusal("PLAIN", **jaas)
    assert read("PLAIN", has_passwords=True).users == {}


def test_jaas_without_the_listener_is_not_used() -> None:
    jaas = {"sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret";'}
    assert "The listener INSIDE has PLAIN and no user" in refusal("PLAIN", **jaas)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_classes_that_check_passwords_are_refused(mechanism: str) -> None:
    handler = {f"{PREFIX}{mechanism.lower()}.sasl.server.callback.handler.class": "com.example.Handler"}
    assert "Java classes cannot be loaded" in refusal(mechanism, has_passwords=True, **handler)


# -- OAUTHBEARER ------------------------------------------------------------------------------------------------


def test_cve_2026_33557_there_is_no_validator_without_keys() -> None:
    assert f"set {URL} to the JSON Web Key Set" in refusal("OAUTHBEARER")


def test_cve_2026_110985_missing_keys_refuse_the_start() -> None:
    handler = {HANDLER: f"{OAUTH}OAuthBearerValidatorCallbackHandler"}
    assert f"set {URL} to the JSON Web Key Set" in refusal("OAUTHBEARER", **handler)


@pytest.mark.parametrize("missing", ["audience", "issuer"])
def test_audience_and_issuer_are_required(missing: str) -> None:
    configs = {name: text for name, text in SIGNED.items() if not name.endswith(missing)}
    assert f"sasl.oauthbearer.expected.{missing} is not set" in refusal("OAUTHBEARER", **configs)
    config = read("OAUTHBEARER", **configs | {f"sasl.oauthbearer.allow.unverified.{missing}": "true"})
    assert isinstance(config.tokens, Signed)
    assert (config.tokens.audiences, config.tokens.issuer)[missing == "issuer"] is None


@pytest.mark.parametrize(
    "handler", ["OAuthBearerValidatorCallbackHandler", "secured.OAuthBearerValidatorCallbackHandler", None]
)
def test_signed_tokens(handler: str | None) -> None:
    named = {} if handler is None else {HANDLER: OAUTH + handler}
    config = read(
        "OAUTHBEARER",
        **SIGNED,
        **named,
        **{
            "sasl.oauthbearer.clock.skew.seconds": "5",
            f"{PREFIX}sasl.oauthbearer.sub.claim.name": "user",
            f"{PREFIX}oauthbearer.sasl.oauthbearer.scope.claim.name": "scp",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "1000",
        },
    )
    tokens = config.tokens
    assert isinstance(tokens, Signed)
    assert (tokens.audiences, tokens.issuer) == (("kafka", "broker"), "https://issuer.test")
    assert (tokens.skew_s, tokens.subject_claim, tokens.scope_claim) == (5, "user", "scp")
    assert isinstance(tokens.keys, NoKeys)
    assert tokens.keys.place == KeySetPlace("https://issuer.test/keys", 1_000, 100, 10_000)


def test_cve_2025_27817_a_client_cannot_choose_what_is_read() -> None:
    """A URL that came by AlterConfigs is not read, whatever it names."""
    prefixed = {f"{PREFIX}{URL}": "file:///etc/passwd"}
    others = {name: text for name, text in SIGNED.items() if name != URL}
    assert "a client cannot choose" in refusal("OAUTHBEARER", dynamic=prefixed, **others)
    assert isinstance(read("OAUTHBEARER", **prefixed, **others).tokens, Signed)


@pytest.mark.parametrize("key", ["sasl.server.callback.handler.class", "sasl.oauthbearer.jwt.validator.class"])
def test_unknown_classes_are_refused(key: str) -> None:
    named = {f"{PREFIX}oauthbearer.{key}": "com.example.Validator"}
    assert key in refusal("OAUTHBEARER", **SIGNED, **named)


@pytest.mark.parametrize("names_the_class", [True, False])
def test_unsecured_tokens_are_asked_for(names_the_class: bool) -> None:
    """By the name of Kafka's class, or by an option that only unsecured tokens have."""
    options = "" if names_the_class else ' unsecuredLoginStringClaim_sub="admin"'
    configs = {f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required{options};"}
    if names_the_class:
        configs[HANDLER] = f"{OAUTH}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
    assert read("OAUTHBEARER", **configs).tokens == Unsecured()


def test_options_of_unsecured_tokens() -> None:
    def configured(options: str) -> dict[str, str]:
        return {f"{PREFIX}oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required {options};"}

    config = read(
        "OAUTHBEARER",
        **configured(
            'unsecuredValidatorPrincipalClaimName="user" unsecuredValidatorScopeClaimName="scp" '
            'unsecuredValidatorRequiredScope="a b" unsecuredValidatorAllowableClockSkewMs="3000"'
        ),
    )
    assert config.tokens == Unsecured("user", "scp", ("a", "b"), 3_000)
    wrong = configured('unsecuredValidatorAllowableClockSkewMs="-1"')
    assert "must be a number of milliseconds" in refusal("OAUTHBEARER", **wrong)
