"""The scripts and the recording: where they are, and the configurations that a broker needs for them."""

import tomllib
from pathlib import Path

import msgspec

from kohort.conformance.deliberate import Deliberate
from kohort.conformance.generated.scenarios import generated_scenarios
from kohort.conformance.scenario import Scenario, scenarios
from kohort.conformance.script import read_scripts
from kohort.model.errors import ConfigError

RECORDED = "kafka-4.2.1.json.gz"

SETTINGS = {
    "group.initial.rebalance.delay.ms": "600",
    "group.max.size": "5",
    "group.min.session.timeout.ms": "200",
    "group.max.session.timeout.ms": "600000",
    "offset.metadata.max.bytes": "64",
    "offsets.topic.num.partitions": "4",
}
"""Quick rebalances, short sessions and small limits, so that a scenario takes seconds."""

NO_LOG_TASKS = {"log.initial.task.delay.ms": "3600000"}
"""
Keeps retention and compaction from running, half a minute after the start, under whatever scenario is running then: batches of
scenarios are of a fixed time in the past.
"""


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
    return [*scenarios(read_scripts(directory / "scripts")), *generated_scenarios()]


def deliberate_differences(directory: Path) -> list[Deliberate]:
    """The rules of `deliberate.toml`."""
    path = directory / "deliberate.toml"
    if not path.exists():
        return []
    return msgspec.convert(tomllib.loads(path.read_text()).get("difference", []), list[Deliberate])
