"""The scripts and the recording: where they are, and the configurations that a broker needs for them."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from kohort.model.errors import ConfigError
from kohort.testing.kafka import RELEASE
from kohort_lab.conformance.deliberate import Deliberate
from kohort_lab.conformance.generated.scenarios import (
    generated_consumer_groups,
    generated_scenarios,
    generated_settings,
    generated_share_fetches,
    generated_share_states,
    generated_transactions,
)
from kohort_lab.conformance.scenarios.scenario import Scenario, scenarios
from kohort_lab.conformance.scenarios.script import DEFAULT_BROKER, ScriptError, read_scripts

SETTINGS = {
    "group.initial.rebalance.delay.ms": "600",
    "group.max.size": "5",
    "group.min.session.timeout.ms": "200",
    "group.max.session.timeout.ms": "600000",
    "offset.metadata.max.bytes": "64",
    "offsets.topic.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "transaction.state.log.num.partitions": "4",
}
"""Quick rebalances, short sessions and small limits, so that a scenario takes seconds."""

TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
FEATURES = frozenset({TRANSACTION_VERSION, SHARE_VERSION, STREAMS_VERSION})
"""Settings that are no configurations: the finalised levels of features, with which a broker begins."""

_SMALL_GROUPS = {
    "group.consumer.max.size": "4",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "300",
}
"""A small limit of members; groups may have short sessions."""
_CONSUMER_GROUPS = _SMALL_GROUPS | {"group.consumer.assignment.interval.ms": "0"}
"""A new assignment at every change. Releases before 4.3 have no such configuration, and do so always."""

BROKERS: dict[str, dict[str, str]] = {
    DEFAULT_BROKER: {},
    "tv0": {TRANSACTION_VERSION: "0"},
    "tv1": {TRANSACTION_VERSION: "1"},
    "expiring": {
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    },
    "unverified": {"transaction.partition.verification.enable": "false"},
    "consumer": _CONSUMER_GROUPS,
    "interval": _SMALL_GROUPS,
    "upgrade": _CONSUMER_GROUPS | {"group.consumer.migration.policy": "upgrade"},
    "downgrade": _CONSUMER_GROUPS | {"group.consumer.migration.policy": "downgrade"},
    "share": {
        "group.share.assignment.interval.ms": "0",
        "group.share.max.size": "4",
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.min.session.timeout.ms": "300",
        "share.coordinator.snapshot.update.records.per.snapshot": "3",
        "share.coordinator.state.topic.num.partitions": "4",
    },
    "plain": {SHARE_VERSION: "0", STREAMS_VERSION: "0"},
    "classic": {"group.coordinator.rebalance.protocols": "classic"},
}
"""The brokers that scenarios run on, by name: settings in addition to `SETTINGS`."""


OF_A_PROFILE = frozenset(
    {
        "api_versions",
        "api_versions_software",
        "api_versions_unknown_version",
        "create_topics_defaults",
        "describe_cluster",
        "describe_configs",
        "txn_api_versions",
        "txn_unknown_versions",
        "unknown_versions",
        "update_features",
        "update_features_changed",
        "update_features_oldest",
    }
)
"""
The scripts about what `--kafka RELEASE` promises of a release before the newest one: APIs, features, defaults. All else is as
in the newest release (docs/releases.md).
"""


def settings(broker: str) -> dict[str, str]:
    """The settings of a broker of `BROKERS`."""
    return SETTINGS | BROKERS[broker]


NO_LOG_TASKS = {"log.initial.task.delay.ms": "3600000"}
"""
Keeps retention and compaction from running, half a minute after the start, under whatever scenario is running then: batches of
scenarios are of a fixed time in the past.
"""


def recording_path(release: str = RELEASE) -> Path:
    """The file with the recording of a release of Apache Kafka, whether it exists or not."""
    return home() / "recorded" / f"kafka-{release}.json.gz"


def home() -> Path:
    """
    The directory with `scripts` and `recorded`: beside this module in an installed package, else in the repository.

    Raises:
        ConfigError: there is no such directory.
    """
    for candidate in (Path(__file__).parent, Path(__file__).parents[3] / "conformance"):
        if (candidate / "scripts").is_dir():
            return candidate
    raise ConfigError("the scripts of the conformance run are not installed; run it from a clone of the repository")


def all_scenarios(directory: Path) -> list[Scenario]:
    """All scenarios, written and generated. Raises ScriptError for an invalid script."""
    found = [
        *scenarios(read_scripts(directory / "scripts")),
        *generated_scenarios(),
        *generated_transactions(),
        *generated_consumer_groups(),
        *generated_settings(),
        *generated_share_states(),
        *generated_share_fetches(),
    ]
    unknown = sorted({scenario.broker for scenario in found} - BROKERS.keys())
    if unknown:
        raise ScriptError(f"there is no broker called {', '.join(unknown)}")
    return found


def scenarios_of(release: str, directory: Path) -> list[Scenario]:
    """The scenarios that a release is compared in: all, or those of `OF_A_PROFILE` for one before the newest."""
    found = all_scenarios(directory)
    return found if release == RELEASE else [each for each in found if each.script in OF_A_PROFILE]


def by_broker(found: Iterable[Scenario]) -> dict[str, list[Scenario]]:
    """Scenarios by the name of their broker, in the order of `BROKERS`; brokers without scenarios are left out."""
    listed = list(found)
    groups = {name: [scenario for scenario in listed if scenario.broker == name] for name in BROKERS}
    return {name: group for name, group in groups.items() if group}


def deliberate_differences(directory: Path) -> list[Deliberate]:
    """The rules of `deliberate.toml`."""
    path = directory / "deliberate.toml"
    if not path.exists():
        return []
    return msgspec.convert(tomllib.loads(path.read_text()).get("difference", []), list[Deliberate])
