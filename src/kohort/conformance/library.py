"""
Where scripts and recordings are, and what a broker has to be set to for their stories.
"""

import tomllib
from pathlib import Path

import msgspec

from kohort.conformance.compare import Deliberate
from kohort.conformance.generated.scenarios import generated_stories
from kohort.conformance.scenario import Scenario, stories
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
"""Quick rebalances, short sessions and small limits, so that a story takes seconds."""


def home() -> Path:
    """
    The directory with `scripts` and `recorded`: beside this module in an installed package, else that of the repository.

    Raises:
        ConfigError: it is nowhere.
    """
    for candidate in (Path(__file__).parent, Path(__file__).parents[3] / "conformance"):
        if (candidate / "scripts").is_dir():
            return candidate
    raise ConfigError("the scripts of the conformance run are not installed; run it from a clone of the repository")


def all_stories(directory: Path) -> list[Scenario]:
    """Written and generated ones. Raises ScriptError when a script is wrong."""
    return [*stories(read_scripts(directory / "scripts")), *generated_stories()]


def deliberate_differences(directory: Path) -> list[Deliberate]:
    """The differences that are meant to be, each with its reason."""
    path = directory / "deliberate.toml"
    if not path.exists():
        return []
    return msgspec.convert(tomllib.loads(path.read_text()).get("difference", []), list[Deliberate])
