"""
Which changes of broker configurations are allowed at run time, and with which message Kafka refuses the others.

A change is for one broker, or for all (the broker with an empty name). Keys that Kohort does not know are accepted, as in
Kafka: they may be configurations of a plug-in.

Source: KIP-226; Kafka DynamicBrokerConfig.validate and its reconfigurables, ConfigAdminManager, KafkaConfig.validateValues,
ConfigurationControlManager; texts of a 4.4.0.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kohort.broker.configs.definitions import (
    BROKER_KEYS,
    LISTENER_PREFIX,
    BrokerConfig,
    ConfigKey,
    UpdateMode,
    known_key,
)
from kohort.broker.configs.group_configs import check_intervals
from kohort.broker.configs.listener_configs import LISTENERS, PROTOCOLS, parse_listeners, protocol_map
from kohort.broker.configs.topic_configs import DEFAULTS_OF_TOPICS, TopicConfigs
from kohort.broker.configs.values import ConfigType, check_filled, parse_host_limits, parse_list
from kohort.model.errors import ConfigError, CoordinatorError, ErrorCode
from kohort.model.numbers import trim

MIN_ISR: Final = "min.insync.replicas"
CORDONED: Final = "cordoned.log.dirs"

_SETTABLE: Final = frozenset({"config.providers"})
"""Read-only keys that Kafka does not refuse."""
_PER_LISTENER: Final = frozenset(
    name for name in BROKER_KEYS if name.startswith(("ssl.key.", "ssl.keystore.", "ssl.truststore."))
)
_CERTIFICATES: Final = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")
"""Values that nobody but the broker needs to see, and everybody may."""
_THREADS: Final = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
)
_CLEANER_THREADS: Final = "log.cleaner.threads"
_DEDUPE: Final = "log.cleaner.dedupe.buffer.size"
_PER_IP: Final = "max.connections.per.ip"
_OVERRIDES: Final = "max.connections.per.ip.overrides"
_RECONFIGURATION: Final = (
    "Invalid value org.apache.kafka.common.config.ConfigException: {} for configuration Invalid dynamic configuration"
)


def check(config: BrokerConfig, configs: Mapping[str, str], *, for_all: bool) -> None:
    """
    Check the configurations that one broker, or all brokers, would have.

    Args:
        config: the present configuration of this broker.

    Raises:
        CoordinatorError: INVALID_REQUEST with Kafka's message.
    """
    try:
        _check_keys(configs, for_all=for_all)
        _check_values(config, configs, for_all=for_all)
    except ConfigError as error:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, str(error)) from error


def check_each(configs: Mapping[str, str]) -> None:
    """
    Check the configurations of another broker, each for itself.

    Raises:
        CoordinatorError: INVALID_REQUEST with Kafka's message.
    """
    try:
        _check_keys(configs, for_all=False)
    except ConfigError as error:
        raise CoordinatorError(ErrorCode.INVALID_REQUEST, str(error)) from error


def usable(
    config: BrokerConfig, stored: Mapping[str, Any], defaults: Mapping[str, str] | None = None
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Which stored values of one broker, or of all brokers, can be used at a start, and why the others cannot.

    Args:
        config: what was set at the start.
        defaults: the values for all brokers, if the stored ones are those of one broker.
    """
    try:
        _check_stored(config, stored, defaults)
    except ConfigError:
        used: dict[str, str] = {}
        refused: dict[str, str] = {}
        for name, text in sorted(stored.items()):
            try:
                _check_stored(config, used | {name: text}, defaults)
                used[name] = text
            except ConfigError as error:
                refused[name] = str(error)
        return used, refused
    return dict(stored), {}


def _check_stored(config: BrokerConfig, stored: Mapping[str, Any], defaults: Mapping[str, str] | None) -> None:
    """Source: Kafka DynamicBrokerConfig.fromPersistentProps, which leaves invalid values out."""
    for name, text in stored.items():
        if not isinstance(text, str):
            raise ConfigError(f"Invalid value {text!r} for configuration {name}: it is not a text")
    _check_keys(stored, for_all=defaults is None)
    new = config.with_dynamic({}, stored) if defaults is None else config.with_dynamic(stored, defaults)
    changed = {name for name in stored if name in BROKER_KEYS and new.text(name) != config.text(name)}
    _check_together(new, changed)


def check_start(config: BrokerConfig) -> None:
    """
    Check the values that the operator has set against each other, as a start of Kafka does.

    Raises:
        ConfigError: with Kafka's message.
    """
    _check_logs(config, set(config.explicit))
    _check_cordoned(config)
    TopicConfigs(config).check_defaults()


def check_min_isr(configs: Mapping[str, str], changed: Iterable[str], *, for_all: bool) -> None:
    """
    Check `min.insync.replicas`, which only the cluster has while eligible leader replicas are enabled, and which it keeps.

    Args:
        changed: keys that the request names.

    Raises:
        CoordinatorError: INVALID_CONFIG with Kafka's message.
    """
    if not for_all and MIN_ISR in changed:
        raise CoordinatorError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
        )
    if for_all and MIN_ISR not in configs:
        raise CoordinatorError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
        )


def _check_keys(configs: Mapping[str, str], *, for_all: bool) -> None:
    """Check each key and value for itself."""
    _check_names(configs)
    for name, text in configs.items():
        key = known_key(name)
        if key is not None:
            elements = parse_list(trim(text)) if key.type is ConfigType.LIST else ()
            if len(set(elements)) < len(elements):
                raise ConfigError(f"Configuration '{key.name}' values must not be duplicated.")
            _check_class(key, key.parse(text))
            for element in elements:
                check_filled(key.name, element)
    _refuse(
        (name for name in configs if _is_secret(name)),
        "These configs are secrets, which the catalog would keep in clear; set them at the start, or name a file",
    )
    if for_all:
        _refuse(
            (name for name in configs if _is_per_broker(name)),
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def _check_names(configs: Mapping[str, str]) -> None:
    read_only = (
        name
        for name in configs
        if name not in _SETTABLE and name in BROKER_KEYS and BROKER_KEYS[name].update_mode is UpdateMode.READ_ONLY
    )
    _refuse(read_only, "Cannot update these configs dynamically")
    _refuse(
        (name for name in configs if name in _PER_LISTENER),
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )


def _is_secret(name: str) -> bool:
    key = known_key(name)
    return key is not None and key.is_sensitive and key.name not in _CERTIFICATES


def _refuse(names: Iterable[str], message: str) -> None:
    """Refuse names, sorted. Kafka lists several in the order of a hash table."""
    found = sorted(names)
    if found:
        raise ConfigError(f"{message}: [{', '.join(found)}]")


def _is_per_broker(name: str) -> bool:
    """Whether only one broker can have a key: one of a listener, unless all brokers can have it without a listener's prefix."""
    key = known_key(name)
    mode = None if key is None else key.update_mode
    is_of_listener = LISTENER_PREFIX.fullmatch(name) is not None
    return mode is UpdateMode.PER_BROKER or (is_of_listener and mode is not UpdateMode.CLUSTER_WIDE)


def _check_class(key: ConfigKey, value: object) -> None:
    """Refuse the names of classes: there is no Java here to load them."""
    if key.type is ConfigType.CLASS and value not in ("", key.default):
        raise ConfigError(f"Invalid value {value} for configuration {key.name}: Class {value} could not be found.")


def _check_values(config: BrokerConfig, configs: Mapping[str, str], *, for_all: bool) -> None:
    """Check values that depend on others. Values that stay as they are do not count: the start has accepted them."""
    defaults, own = (configs, config.dynamic) if for_all else (config.dynamic_defaults, configs)
    new = config.with_dynamic(own, defaults)
    changed = {name for name in BROKER_KEYS if new.text(name) != config.text(name)}
    _check_threads(config, new, changed)
    check_intervals(new)
    _check_together(new, changed)


def _check_together(new: BrokerConfig, changed: set[str]) -> None:
    """Check values against each other, and what is computed from them."""
    _check_logs(new, changed)
    _check_cordoned(new)
    _check_connections(new, changed)
    _check_reconfiguration(new, changed)
    if LISTENERS in changed:
        parse_listeners(new)
    if PROTOCOLS in changed:
        protocol_map(new.get_str(PROTOCOLS) or "")
    if not changed.isdisjoint(DEFAULTS_OF_TOPICS):
        TopicConfigs(new).check_defaults()


def _check_logs(new: BrokerConfig, changed: set[str]) -> None:
    if "log.roll.ms" in changed and (new["log.roll.ms"] is not None and new.get_int("log.roll.ms") < 1):
        raise ConfigError("requirement failed: log.roll.ms must be greater than or equal to 1")
    jitter = "log.roll.jitter.ms"
    if jitter in changed and (new[jitter] is not None and new.get_int(jitter) < 0):
        raise ConfigError(f"requirement failed: {jitter} must be greater than or equal to 0")
    if "log.retention.ms" in changed and new["log.retention.ms"] == 0:
        raise ConfigError("requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    if not changed.isdisjoint({_CLEANER_THREADS, _DEDUPE}):
        threads = new.get_int(_CLEANER_THREADS)
        if threads == 0:
            raise ConfigError("/ by zero")
        if new.get_int(_DEDUPE) // threads <= 1024 * 1024:
            raise ConfigError(f"requirement failed: {_DEDUPE} must be at least 1MB per cleaner thread.")


def _check_cordoned(config: BrokerConfig) -> None:
    """Source: Kafka AbstractKafkaConfig.validateCordonedLogDirs; texts of a 4.4.0."""
    directories = config.get_list(CORDONED)
    if "*" in directories and len(directories) > 1:
        raise ConfigError(f"requirement failed: When {CORDONED} is set to *, it must not contain other values")
    if missing := [each for each in directories if each not in ("*", config.log_dir)]:
        raise ConfigError(
            f"requirement failed: All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries : "
            + ", ".join(missing)
        )


def _check_connections(new: BrokerConfig, changed: set[str]) -> None:
    if changed.isdisjoint({_PER_IP, _OVERRIDES}):
        return
    overrides = new.get_str(_OVERRIDES) or ""
    if not overrides and new.get_int(_PER_IP) == 0:
        raise ConfigError(f"requirement failed: {_PER_IP} can be set to zero only if {_OVERRIDES} property is set.")
    # Imported late: few brokers have overrides.
    import ipaddress

    for host, _ in parse_host_limits(_OVERRIDES, overrides):
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ConfigError(
                f"{host!r} in {_OVERRIDES} is not an address. Host names can be given at the start only."
            ) from None


def _check_threads(old: BrokerConfig, new: BrokerConfig, changed: set[str]) -> None:
    """A number of threads may at most double or halve. Source: DynamicThreadPool.validateReconfiguration, LogCleaner."""
    for name in (*_THREADS, _CLEANER_THREADS):
        was, count = old.get_int(name), new.get_int(name)
        if name not in changed or was // 2 <= count <= was * 2:
            continue
        if name == _CLEANER_THREADS:
            how = "reduced to less than half" if count < was else "increased to more than double"
            message = f"Log cleaner threads cannot be {how}"
        else:
            how = "be at least half" if count < was else "not be greater than double"
            message = f"Dynamic thread count update validation failed for {name}={count}, value should {how}"
        raise ConfigError(_RECONFIGURATION.format(f"{message} the current value {was}"))


def _check_reconfiguration(new: BrokerConfig, changed: set[str]) -> None:
    for name in ("max.connections", "max.connection.creation.rate"):
        if name in changed and new.get_int(name) == 0:
            raise ConfigError(_RECONFIGURATION.format(f"Invalid {name} 0"))
    topics = TopicConfigs(new)
    for name, lag in (("retention.ms", "log.remote.copy.lag.ms"), ("retention.bytes", "log.remote.copy.lag.bytes")):
        local, whole = f"log.local.{name}", f"log.{name}"
        value, other = new.get_int(local), topics.parsed(name, {})
        assert isinstance(other, int)
        if not changed.isdisjoint({local, whole}) and value != -2 and other != -1 and (value == -1 or value > other):
            why = (
                f"Value must not be -1 as {whole} value is set as {other}."
                if value == -1
                else f"Value must not be more than {whole} property value: {other}"
            )
            raise ConfigError(_RECONFIGURATION.format(f"Invalid value {value} for configuration {local}: {why}"))
        least = other if value == -2 else value
        if not changed.isdisjoint({lag, local, whole}) and new.get_int(lag) > least >= 0:
            why = f"Value must not exceed {local} (effective value: {least})"
            raise ConfigError(
                _RECONFIGURATION.format(f"Invalid value {new.get_int(lag)} for configuration {lag}: {why}")
            )
    default = BROKER_KEYS["metric.reporters"].default
    if "metric.reporters" in changed and not set(new.get_list("metric.reporters")) <= {default}:
        message = (
            "Validation of dynamic config update of Set(metric.reporters) failed with class class "
            "kafka.server.DynamicMetricsReporters"
        )
        raise ConfigError(_RECONFIGURATION.format(message))
