"""From the options of `kohort serve` to the settings of a node."""

import argparse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.cli.kafka_image import configs_of
from kohort.cli.serve_security import (
    default_configs,
    default_protocol,
    make_certificates,
    metrics_token,
    users_of,
)
from kohort.model.errors import ConfigError

if TYPE_CHECKING:
    from kohort.server.settings import Settings

PORT: Final = 9092
FOR_TESTS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.min.session.timeout.ms": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "100",
    "group.share.min.heartbeat.interval.ms": "1",
    "group.share.min.session.timeout.ms": "1",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.heartbeat.interval.ms": "100",
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.min.heartbeat.interval.ms": "1",
    "group.streams.min.session.timeout.ms": "1",
    "group.coordinator.rebalance.protocols": "classic,consumer,share,streams",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "offsets.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}
"""
Configurations of `--for-tests`: nothing waits for members that may come, heartbeats bring assignments soon, sessions can be
short, internal topics are small, one broker is enough, and what has expired is gone soon. Every other configuration has
Kafka's default.
"""

CLIENTS_FOR_TESTS: Final = (
    "clients of the classic protocol have intervals of their own: heartbeat.interval.ms=100 makes their groups quick"
)
"""Settings of clients, which `--for-tests` cannot make."""


def configs_for_tests(release: str) -> dict[str, str]:
    """`FOR_TESTS`, without configurations that the release does not have or that have no effect."""
    from kohort.broker.configs.definitions import keys_of

    known = keys_of(release).broker
    return {name: text for name, text in FOR_TESTS.items() if name in known and known[name].has_effect}


@contextmanager
def node_settings(options: argparse.Namespace, environment: Mapping[str, str]) -> "Iterator[Settings]":
    """
    The settings of a node. Certificates that `--tls` makes exist until the context ends.

    Raises:
        ConfigError: options exclude each other, or a configuration is invalid.
    """
    given = [
        name
        for name, is_given in (
            ("--memory", options.memory),
            ("--data-dir", options.data_dir is not None),
            ("--store", options.store is not None),
        )
        if is_given
    ]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} exclude each other; give one of them")
    if not given and not options.for_tests:
        raise ConfigError("no storage given; use --data-dir DIR, --store URL, or --memory to keep nothing")
    if options.store is not None and options.flush != "commit":
        raise ConfigError(
            f"--flush {options.flush} is for a data directory: with --store a write is acknowledged when the database has "
            "committed it"
        )

    if options.store is not None and options.brokers > 1:
        raise ConfigError(
            "--brokers is for one process with all brokers; with --store each broker is a process: start more of them on the "
            "same database, each with another --set node.id"
        )
    if options.store is not None and options.virtual_time:
        raise ConfigError("--virtual-time is for tests with --memory or --data-dir: leases of nodes are in real time")

    from kohort.broker.configs.definitions import BrokerConfig
    from kohort.broker.features import parse_features
    from kohort.server.settings import Secret, Settings, parse_host_port

    users = users_of(options, environment)
    sets = [*(configs_of(environment) if options.kafka_image else ()), *options.set]
    load = partial(BrokerConfig.load, sets=sets, file=options.config, environment=environment, release=options.kafka)
    made = make_certificates(options, load())
    defaults = default_configs(users, made) | (configs_for_tests(options.kafka) if options.for_tests else {})
    try:
        config = load(defaults=defaults)
        if options.for_tests and not options.kafka_image:
            _refuse_unknown(config.unknown)
        yield Settings(
            host=options.host,
            port=port_of(options),
            brokers=options.brokers,
            racks=_racks(options.racks, options.brokers),
            advertised=parse_host_port(options.advertised, "--advertised") if options.advertised else None,
            metrics_port=options.metrics_port,
            metrics_token=metrics_token(options),
            allow_anonymous=options.allow_anonymous,
            data_dir=options.data_dir,
            store=None if options.store is None else Secret(options.store),
            flush=options.flush,
            protocol=default_protocol(users, is_encrypted=options.tls),
            users=users,
            made_certificates=None if made is None else made.directory,
            config=config,
            makes_internal_topics=options.for_tests,
            features=parse_features(options.feature),
            virtual_time=options.virtual_time,
        )
    finally:
        if made is not None:
            made.remove()


def _refuse_unknown(unknown: Mapping[str, str]) -> None:
    """
    Kafka starts with names that it does not know. A test that misspells one would test something else.

    Raises:
        ConfigError: there are some.
    """
    for name, similar in sorted(unknown.items()):
        hint = f"; did you mean {similar}?" if similar else ""
        raise ConfigError(f"nothing reads the configuration {name!r}{hint} (--for-tests refuses what is not known)")


def port_of(options: argparse.Namespace) -> int:
    """The port to listen on."""
    if options.port is not None:
        return int(options.port)
    return 0 if options.for_tests else PORT


def _racks(text: str | None, brokers: int) -> tuple[str, ...]:
    racks = tuple(rack.strip() for rack in text.split(",")) if text else ()
    if racks and (len(racks) != brokers or not all(racks)):
        raise ConfigError(
            f"--racks has {len(racks)} racks for --brokers {brokers}; give each broker one, such as a,b,c"
        )
    return racks
