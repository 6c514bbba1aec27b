"""
The assignors of `group.consumer.assignors`: built in, or installed as entry points of the group `kohort.assignors`.

docs/howto/custom-assignors.md describes how to write and register one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kohort.group.assignors.builtin import BUILT_IN, KAFKA_CLASSES
from kohort.group.assignors.checking import CheckedAssignor
from kohort.group.assignors.interface import PartitionAssignor, SteppedAssignor
from kohort.model.errors import ConfigError

ENTRY_POINTS: Final = "kohort.assignors"
_SETTING: Final = "group.consumer.assignors"


def load_assignors(names: Sequence[str]) -> dict[str, SteppedAssignor]:
    """
    Load the assignors of a setting.

    Args:
        names: names of assignors, or class names of Kafka's own.

    Returns:
        The assignors by name, in the order of the setting. The first is the default of groups whose members choose none.

    Raises:
        ConfigError: there is no name, a name twice or an unknown one, or an installed assignor cannot be loaded.
    """
    if not names:
        raise ConfigError(f"{_SETTING} is empty; set it to at least one assignor, for example uniform")
    assignors: dict[str, SteppedAssignor] = {}
    for name in names:
        assignor = _load(KAFKA_CLASSES.get(name, name))
        if assignor.name in assignors:
            raise ConfigError(f"{_SETTING} has the assignor {assignor.name} twice")
        assignors[assignor.name] = assignor
    return assignors


def _load(name: str) -> SteppedAssignor:
    built_in = BUILT_IN.get(name)
    if built_in is not None:
        return built_in
    from importlib.metadata import entry_points  # costs a start without assignors of packages several milliseconds

    found = entry_points(group=ENTRY_POINTS, name=name)
    if len(found) != 1:
        if found:
            places = ", ".join(point.value for point in found)
            raise ConfigError(
                f"several packages register the assignor {name} of {_SETTING}: {places}; keep one installed"
            )
        known = sorted({*BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})
        raise ConfigError(
            f"{_SETTING} names the assignor {name!r}, which is unknown; known are {', '.join(known)}. A package registers an "
            f'assignor by an entry point: [project.entry-points."{ENTRY_POINTS}"] {name} = "package.module:Class"'
        )
    (point,) = found
    try:
        make: Callable[[], PartitionAssignor | SteppedAssignor] = point.load()
        assignor = make()
        assignor_name = assignor.name
    except Exception as error:
        raise ConfigError(
            f"the assignor {name} of {_SETTING} cannot be loaded from {point.value}: {error!r}"
        ) from error
    if assignor_name != name:
        raise ConfigError(
            f"the assignor of {point.value} is registered as {name}, and its name is {assignor_name}; make both the same"
        )
    return CheckedAssignor(assignor)
