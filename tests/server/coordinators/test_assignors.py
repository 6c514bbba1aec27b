"""The assignors of `group.consumer.assignors`: names, Kafka's class names, and entry points of installed packages."""

from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from kohort.group.assignors.builtin import BUILT_IN
from kohort.model.errors import ConfigError
from kohort.server.coordinators.assignors import load_assignors
from tests.group.assignors.groups import Topics, assign, group

Install = Callable[[str, str], None]

MODULE = """
class First:
    name = "first"

    def assign(self, group, topics):
        return {next(iter(group.members)): {topic: range(topics.partition_count(topic)) for topic in group.topic_ids}}

class Broken:
    def __init__(self):
        raise OSError("no licence")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package with a module `tried_assignors` and one entry point: its name, and the object of the module."""

    def installed(name: str, target: str) -> None:
        place = tmp_path / f"site{len(list(tmp_path.iterdir()))}"
        info = place / f"package_{place.name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-{place.name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[kohort.assignors]\n{name} = tried_assignors:{target}\n")
        (place / "tried_assignors.py").write_text(MODULE)
        monkeypatch.syspath_prepend(place)

    return installed


def test_the_first_name_is_the_default() -> None:
    assert list(load_assignors(["range", "uniform"])) == ["range", "uniform"]
    assert load_assignors(["uniform"]) == {"uniform": BUILT_IN["uniform"]}


def test_class_names_of_kafka_mean_the_same_assignors() -> None:
    package = "org.apache.kafka.coordinator.group.assignor"
    assert load_assignors([f"{package}.RangeAssignor", f"{package}.UniformAssignor"]) == load_assignors(
        ["range", "uniform"]
    )


def test_an_installed_assignor_is_loaded_and_checked(install: Install) -> None:
    install("first", "First")
    assignor = load_assignors(["uniform", "first"])["first"]
    topic = UUID(int=1)
    assert assign(assignor, group({"m1": [topic], "m2": [topic]}), Topics({topic: 2})) == {
        "m1": {topic: (0, 1)},
        "m2": {},
    }


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "group.consumer.assignors is empty"),
        (["uniform", "range", "uniform"], "has the assignor uniform twice"),
        (["range", "org.apache.kafka.coordinator.group.assignor.RangeAssignor"], "has the assignor range twice"),
        (
            ["sticky"],
            r"'sticky', which is unknown; known are range, uniform\. A package registers an assignor by an entry point: .*",
        ),
        (["com.example.Assignor"], "'com.example.Assignor', which is unknown"),
        ([""], "'', which is unknown"),
    ],
)
def test_a_wrong_setting_is_refused(names: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_assignors(names)


def test_an_unknown_name_is_refused_with_the_names_of_installed_ones(install: Install) -> None:
    install("first", "First")
    with pytest.raises(ConfigError, match="known are first, range, uniform"):
        load_assignors(["second"])


def test_an_assignor_that_cannot_be_made_is_refused(install: Install) -> None:
    install("broken", "Broken")
    install("absent", "Absent")
    with pytest.raises(ConfigError, match=r"cannot be loaded from tried_assignors:Broken: OSError\('no licence'\)"):
        load_assignors(["broken"])
    with pytest.raises(ConfigError, match="cannot be loaded from tried_assignors:Absent: AttributeError"):
        load_assignors(["absent"])


def test_an_assignor_with_another_name_is_refused(install: Install) -> None:
    """Members choose it by its name, and the setting by the name of the entry point."""
    install("second", "First")
    with pytest.raises(ConfigError, match="is registered as second, and its name is first"):
        load_assignors(["second"])


def test_two_packages_with_the_same_name_are_refused(install: Install) -> None:
    install("first", "First")
    install("first", "First")
    with pytest.raises(ConfigError, match="several packages register the assignor first"):
        load_assignors(["first"])
